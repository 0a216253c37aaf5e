//! The process that has a pool mounted: it serves the pool's control socket until the pool is
//! unmounted, by request, by signal, or because its last mount was ended from outside.
//!
//! Only this module uses an async runtime. All code below it blocks, and runs on the runtime's
//! blocking threads.

mod allocator;
mod background;
mod beginning;
mod control_socket;
mod conversation;
mod ending;
mod error;
mod line;
mod mounted;
mod reclaim;
mod runtime;
mod signals;
#[cfg(test)]
mod tests;
mod turns;

pub use allocator::restart_tuned;
pub use background::{Completeness, Readiness, SERVE, Verdict};
pub(crate) use background::{Input, in_background};
pub use error::DaemonError;
pub(crate) use line::Line;
pub(crate) use mounted::{Activity, Caller, Disposition, Ending, Mounted};
pub(crate) use reclaim::set_io_flusher;
pub(crate) use signals::unblock_signals;

use crate::control::ControlDirectory;
use beginning::Beginning;
use control_socket::ControlSocket;
use conversation::{send_all, serve_connection};
use ending::{AskedBySignal, EndingThreads, Endings, IDLE_LIMIT, leave};
use runtime::{check_descriptors, raise_descriptor_limit, runtime};
use signals::{LAST_PATIENCE, signals};
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::Signal;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};
use turns::Turns;

/// Pause before the next accept after a failed one.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// How often to check that the control socket still exists.
const SOCKET_GLANCE: Duration = Duration::from_secs(2);

/// The receiver that notices when all mounts are gone.
pub(crate) type MountsGone = mpsc::Receiver<Infallible>;

/// A token that mounts hold, and the receiver that notices when all are gone.
pub(crate) fn mounts_end() -> (Arc<mpsc::Sender<Infallible>>, MountsGone) {
    let (sender, receiver) = mpsc::channel(1);
    (Arc::new(sender), receiver)
}

/// A process ready to serve.
#[derive(Debug)]
pub(crate) struct Daemon {
    socket: ControlSocket,
    signals: [Signal; 4],
    beginning: Beginning,
    endings: EndingThreads,
    // Dropped after everything registered with it.
    runtime: Runtime,
}

impl Daemon {
    /// Binds the control socket of a pool, and catches the signals that would end the process.
    pub(crate) fn bind(directory: &ControlDirectory, pool: &str) -> io::Result<Self> {
        Self::bind_with(&mut Builder::new_current_thread(), IDLE_LIMIT, directory, pool)
    }

    fn bind_with(
        threads: &mut Builder,
        patience: Duration,
        directory: &ControlDirectory,
        pool: &str,
    ) -> io::Result<Self> {
        raise_descriptor_limit();
        check_descriptors()?;
        let runtime = runtime(threads.enable_all())?;
        let endings = EndingThreads::start(patience)?;
        let registered = runtime.enter();
        let socket = ControlSocket::bind(directory, pool)?;
        let signals = signals()?;
        drop(registered);
        let beginning = Beginning::watch(socket.path())?;
        Ok(Self { socket, signals, beginning, endings, runtime })
    }

    /// Notes that the pool is open and about to be mounted: from now on a signal calls `relieve` to
    /// stop waits for its devices. Before, it ends the process.
    pub(crate) fn mounting(&self, relieve: impl Fn() + Send + 'static) {
        self.beginning.mounting(relieve);
    }

    /// Serves until the pool is unmounted: by request, by signal, or because all holders of the
    /// sender of `ended` are gone.
    pub(crate) fn serve(
        self,
        mounted: Arc<impl Mounted>,
        ended: mpsc::Receiver<Infallible>,
    ) -> Result<(), DaemonError> {
        let Self { socket, signals, beginning, endings, runtime } = self;
        drop(beginning);
        let served = runtime.block_on(run(socket, signals, mounted, endings.handles(), ended));
        // Requests that wait for devices do not delay the end of the process.
        runtime.shutdown_timeout(LAST_PATIENCE);
        endings.shut_down(LAST_PATIENCE);
        served
    }
}

async fn run(
    mut socket: ControlSocket,
    signals: [Signal; 4],
    mounted: Arc<impl Mounted>,
    endings: Endings,
    mut ended: mpsc::Receiver<Infallible>,
) -> Result<(), DaemonError> {
    let [mut terminate, mut interrupt, mut hangup, mut quit] = signals;
    let (farewell_sender, mut farewells) = mpsc::channel(1);
    let mut leaving = pin!(async {
        ended.recv().await;
        leave(&mounted, &endings).await
    });
    // Changes finished while the pool was being ended: their answers are sent at its end.
    let mut waiting = Vec::new();
    let mut asked_by_signal = AskedBySignal::default();
    let turns = Arc::new(Turns::new());
    let mut glances = interval(SOCKET_GLANCE);
    glances.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            connection = socket.accept() => match connection {
                Ok(stream) => {
                    let sender = farewell_sender.downgrade();
                    let (mounted, endings) = (Arc::clone(&mounted), endings.clone());
                    let turns = Arc::clone(&turns);
                    tokio::spawn(serve_connection(stream, mounted, (endings, turns), sender));
                }
                Err(error) => {
                tracing::warn!(%error, "control socket");
                // Without descriptors the next one fails as well, until some are closed.
                sleep(ACCEPT_AGAIN).await;
            }
            },
            _ = glances.tick() => socket.renew(),
            _ = terminate.recv() => asked_by_signal.begin(&mounted, &endings),
            _ = interrupt.recv() => asked_by_signal.begin(&mounted, &endings),
            _ = hangup.recv() => asked_by_signal.begin(&mounted, &endings),
            _ = quit.recv() => asked_by_signal.begin(&mounted, &endings),
            ended = asked_by_signal.outcome(mounted.as_ref()) => if ended? { return Ok(()) },
            Some(farewell) = farewells.recv() => {
                let is_end = farewell.is_end;
                waiting.push(farewell);
                if is_end {
                    // The client may mount the pool again at once, so the socket goes first.
                    drop(socket);
                    let ended = asked_by_signal.finish(mounted.as_ref()).await;
                    return ended.and(send_all(waiting).await);
                }
            }
            ended = leaving.as_mut() => {
                let ended = asked_by_signal.finish(mounted.as_ref()).await.and(ended);
                // This may be due to a request that is about to be answered.
                drop(farewell_sender);
                if waiting.is_empty() {
                    waiting.extend(farewells.recv().await);
                }
                drop(socket);
                return ended.and(send_all(waiting).await);
            }
        }
    }
}
