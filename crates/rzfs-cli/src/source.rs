//! The pools that a command queries: on devices given with `-d`, or mounted ones.

use crate::console::{Console, Failure, Outcome};
use crate::zpool::vdev_name::NameStyle;
use rzfs::{Pool, PoolOptions};
use rzfs_dsl::import::{
    ActivityCheck, DeviceSource, ImportError, ImportFailure, ImportOptions, LoadVerification,
    MissingLogs,
};
use rzfs_format::pool_state::PoolState;
use rzfs_server::control::{
    AskedPools, ControlClient, ControlDirectory, ControlError, ReceiveProgress,
};
use rzfs_server::protocol::{
    AccountQuery, AccountReport, AddRequest, Answer, Change, DatasetListing, DatasetQuery,
    DiffPart, DiffQuery, EventReport, HistoryReport, HoldReport, Layout, MountReport, PoolReport,
    ReceiveRequest, Request, SendRequest, StatsReport, StreamSizes, VdevReport,
};
use rzfs_server::service::{self, PoolService};
use rzfs_vdev::create::LocalPools;
use rzfs_zdb::calendar::Calendar;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{Read, Write};
use std::path::PathBuf;

/// A pool that can be queried.
pub(crate) trait PoolClient {
    /// Its name.
    fn pool(&self) -> &str;

    /// Sends a request and waits for the answer.
    fn ask(&mut self, request: &Request) -> Result<Answer, Failure>;

    /// Sends a snapshot; returns what was left out.
    fn send_snapshot(
        self: Box<Self>,
        request: &SendRequest,
        to: &mut dyn Write,
    ) -> Result<Vec<String>, Failure>;
}

/// Converts an error of the process of a pool to a failure of a command.
fn failure(error: ControlError) -> Failure {
    match error {
        ControlError::Wire { pool, source } if source.is_hang_up() => {
            Failure::Gone(format!("cannot open '{pool}': no such pool"))
        }
        ControlError::Refused(refusal) => Failure::Refused(refusal),
        ControlError::Silent { .. } => Failure::Silent(error.to_string()),
        error => Failure::Failed(error.to_string()),
    }
}

impl PoolClient for ControlClient {
    fn pool(&self) -> &str {
        &self.identity().pool
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, Failure> {
        Self::ask(self, request).map_err(failure)
    }

    fn send_snapshot(
        self: Box<Self>,
        request: &SendRequest,
        to: &mut dyn Write,
    ) -> Result<Vec<String>, Failure> {
        (*self).send_snapshot(request, to).map_err(failure)?.map_err(Failure::Output)
    }
}

/// The failure for an answer of the wrong kind: the peer is not what it claims.
fn mismatch(respondent: &dyn PoolClient) -> Failure {
    Failure::Failed(ControlError::Mismatch(respondent.pool().to_owned()).to_string())
}

/// The answer of one pool to a query of all pools: `None` if it was closed meanwhile.
pub(crate) fn unless_gone<T>(answer: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match answer {
        Err(Failure::Gone(_)) => Ok(None),
        answer => answer.map(Some),
    }
}

/// The answer of a pool to a query of these names, or of all pools if there are none: then `None`
/// for a pool that was closed meanwhile.
pub(crate) fn unless_gone_or_named<T>(
    names: &[String],
    answer: Result<T, Failure>,
) -> Result<Option<T>, Failure> {
    match names {
        [] => unless_gone(answer),
        _ => answer.map(Some),
    }
}

/// The state of a pool.
pub(crate) fn pool_report(respondent: &mut dyn PoolClient) -> Result<PoolReport, Failure> {
    match respondent.ask(&Request::Pool)? {
        Answer::Pool(report) => Ok(*report),
        _ => Err(mismatch(respondent)),
    }
}

/// Datasets of a pool.
pub(crate) fn datasets(
    respondent: &mut dyn PoolClient,
    query: DatasetQuery,
) -> Result<DatasetListing, Failure> {
    match respondent.ask(&Request::Datasets(query))? {
        Answer::Datasets(listing) => Ok(listing),
        _ => Err(mismatch(respondent)),
    }
}

/// The holds on snapshots.
pub(crate) fn holds(
    respondent: &mut dyn PoolClient,
    names: Vec<String>,
) -> Result<Vec<HoldReport>, Failure> {
    match respondent.ask(&Request::Holds { names })? {
        Answer::Holds(holds) => Ok(holds),
        _ => Err(mismatch(respondent)),
    }
}

/// The usage of a file system by users, groups or projects.
pub(crate) fn accounts(
    respondent: &mut dyn PoolClient,
    query: AccountQuery,
) -> Result<Vec<AccountReport>, Failure> {
    match respondent.ask(&Request::Accounts(query))? {
        Answer::Accounts(accounts) => Ok(accounts),
        _ => Err(mismatch(respondent)),
    }
}

/// The number of removed files of a file system that still occupy space.
pub(crate) fn unfreed_files(
    respondent: &mut dyn PoolClient,
    file_system: String,
) -> Result<u64, Failure> {
    match respondent.ask(&Request::UnfreedFiles { file_system })? {
        Answer::UnfreedFiles(files) => Ok(files),
        _ => Err(mismatch(respondent)),
    }
}

/// Files that differ.
pub(crate) fn differences(
    respondent: &mut dyn PoolClient,
    query: DiffQuery,
) -> Result<DiffPart, Failure> {
    match respondent.ask(&Request::Differences(query))? {
        Answer::Differences(part) => Ok(part),
        _ => Err(mismatch(respondent)),
    }
}

/// The bytes reclaimed by destroying runs of snapshots.
pub(crate) fn reclaimed(
    respondent: &mut dyn PoolClient,
    runs: Vec<(String, String)>,
) -> Result<u64, Failure> {
    match respondent.ask(&Request::Reclaimed { runs })? {
        Answer::Reclaimed(bytes) => Ok(bytes),
        _ => Err(mismatch(respondent)),
    }
}

/// The size of a send stream, or of each of its streams.
pub(crate) fn stream_sizes(
    respondent: &mut dyn PoolClient,
    request: &SendRequest,
) -> Result<StreamSizes, Failure> {
    match respondent.ask(&Request::StreamSizes(request.clone()))? {
        Answer::StreamSizes(sizes) => Ok(sizes),
        _ => Err(mismatch(respondent)),
    }
}

/// The history of a pool.
pub(crate) fn history(respondent: &mut dyn PoolClient) -> Result<Vec<HistoryReport>, Failure> {
    match respondent.ask(&Request::History)? {
        Answer::History(history) => Ok(history),
        _ => Err(mismatch(respondent)),
    }
}

/// Mounts of a pool.
pub(crate) fn mounts(respondent: &mut dyn PoolClient) -> Result<Vec<MountReport>, Failure> {
    match respondent.ask(&Request::Mounts)? {
        Answer::Mounts(mounts) => Ok(mounts),
        _ => Err(mismatch(respondent)),
    }
}

/// All mounted pools, by name; the outcome as for [`all_imported`].
pub(crate) fn mounted(
    console: &mut Console<'_>,
) -> Result<(Vec<Box<dyn PoolClient>>, Outcome), Failure> {
    let (clients, outcome) = all_imported(console)?;
    let clients = clients.into_iter().map(|client| Box::new(client) as Box<dyn PoolClient>);
    Ok((clients.collect(), outcome))
}

/// All pools that this user has imported, by name. Reports unresponsive ones: the command then
/// fails, after its work on the others.
pub(crate) fn all_imported(
    console: &mut Console<'_>,
) -> Result<(Vec<ControlClient>, Outcome), Failure> {
    let mounted = ControlDirectory::of_user().mounted();
    let mounted = mounted.map_err(|error| Failure::Failed(error.to_string()))?;
    let mut outcome = Ok(());
    for error in &mounted.silent {
        outcome = Err(report_omitted(error, console));
    }
    Ok((mounted.clients, outcome))
}

/// Reports that a pool is left out, and why.
pub(crate) fn report_omitted(reason: impl Display, console: &mut Console<'_>) -> Failure {
    console.complain(format_args!("{reason}: it is left out"));
    Failure::Told
}

/// The mounted pools among these, by name.
fn mounted_as(names: &[String]) -> Result<Vec<Box<dyn PoolClient>>, Failure> {
    let mut pools: Vec<Box<dyn PoolClient>> = Vec::new();
    for name in names.iter().collect::<BTreeSet<_>>() {
        pools.extend(imported(name)?.map(|client| Box::new(client) as Box<dyn PoolClient>));
    }
    Ok(pools)
}

/// Pools in an order in which their mounts can be ended: none is inside a mount of a later pool.
pub(crate) fn innermost_first(clients: Vec<ControlClient>) -> Vec<ControlClient> {
    let outermost = |client: &mut ControlClient| {
        let mounts = mounts(client).unwrap_or_default();
        mounts.into_iter().map(|mount| PathBuf::from(mount.mountpoint)).min()
    };
    let mut placed: Vec<_> =
        clients.into_iter().map(|mut client| (outermost(&mut client), client)).collect();
    placed.sort_by(|(a, _), (b, _)| b.cmp(a));
    placed.into_iter().map(|(_, client)| client).collect()
}

/// The pool with this name, if this user has it imported.
pub(crate) fn imported(pool: &str) -> Result<Option<ControlClient>, Failure> {
    let client = ControlDirectory::of_user().mounted_as(pool);
    client.map_err(|error| Failure::Failed(format!("cannot open '{pool}': {error}")))
}

/// The pools with these names, or all imported ones. Some of the latter may be closed meanwhile
/// ([`unless_gone`]), and the outcome is that of [`all_imported`].
pub(crate) fn required_or_all(
    names: &[String],
    console: &mut Console<'_>,
) -> Result<(Vec<ControlClient>, Outcome), Failure> {
    match names {
        [] => all_imported(console),
        names => {
            let clients: Result<_, _> = names.iter().map(|name| required(name)).collect();
            Ok((clients?, Ok(())))
        }
    }
}

/// The pool with this name, which must be imported.
pub(crate) fn required(pool: &str) -> Result<ControlClient, Failure> {
    let missing = || Failure::Failed(format!("cannot open '{pool}': no such pool"));
    imported(pool)?.ok_or_else(missing)
}

/// Changes an imported pool; returns complaints about secondary failures.
pub(crate) fn change(
    client: &mut ControlClient,
    change: Change,
    command: Option<&str>,
) -> Result<Vec<String>, Failure> {
    let request = Request::Change { change, command: command.map(str::to_owned) };
    match PoolClient::ask(client, &request)? {
        Answer::Done { complaints } => Ok(complaints),
        _ => Err(mismatch(client)),
    }
}

/// Makes an imported pool close its devices.
pub(crate) fn end(client: &mut ControlClient, request: &Request) -> Outcome {
    match PoolClient::ask(client, request)? {
        Answer::Unmounted => Ok(()),
        _ => Err(mismatch(client)),
    }
}

/// The counters of an imported pool.
pub(crate) fn stats(client: &mut ControlClient) -> Result<StatsReport, Failure> {
    match PoolClient::ask(client, &Request::Stats)? {
        Answer::Stats(report) => Ok(*report),
        _ => Err(mismatch(client)),
    }
}

/// The events of an imported pool.
pub(crate) fn events(client: &mut ControlClient) -> Result<Vec<EventReport>, Failure> {
    match PoolClient::ask(client, &Request::Events)? {
        Answer::Events(events) => Ok(events),
        _ => Err(mismatch(client)),
    }
}

/// The layout of the vdevs of an imported pool after an addition.
pub(crate) fn layout_with(
    client: &mut ControlClient,
    request: AddRequest,
) -> Result<Layout, Failure> {
    match PoolClient::ask(client, &Request::PlanAdd(request))? {
        Answer::Layout(layout) => Ok(layout),
        _ => Err(mismatch(client)),
    }
}

/// Receives snapshots from `from` into an imported pool; `hear` is called with the progress.
pub(crate) fn receive_snapshots(
    client: ControlClient,
    request: &ReceiveRequest,
    from: impl Read + Send + 'static,
    hear: impl FnMut(ReceiveProgress),
) -> Outcome {
    client.receive_snapshots(request, from, hear).map_err(failure)
}

/// Knowledge about the pools that this user has imported. Reports unresponsive ones.
pub(crate) fn local_pools(console: &mut Console<'_>) -> Result<LocalPools, Failure> {
    let asked = ControlDirectory::of_user().local_pools();
    let AskedPools { local, silent } = asked.map_err(|error| Failure::Failed(error.to_string()))?;
    silent.iter().for_each(|error| drop(report_omitted(error, console)));
    Ok(local)
}

/// A pool opened for one command.
struct Local(PoolService);

impl PoolClient for Local {
    fn pool(&self) -> &str {
        self.0.pool().name()
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, Failure> {
        match self.0.answer(request, &[]) {
            Answer::Failed(refusal) => Err(Failure::Refused(refusal)),
            answer => Ok(answer),
        }
    }

    fn send_snapshot(
        self: Box<Self>,
        request: &SendRequest,
        to: &mut dyn Write,
    ) -> Result<Vec<String>, Failure> {
        match self.0.sending(request).map_err(Failure::Refused)?.write_to(to) {
            Answer::Failed(refusal) => Err(Failure::Refused(refusal)),
            Answer::Done { complaints } => Ok(to.flush().map(|()| complaints)?),
            _ => Err(mismatch(self.as_ref())),
        }
    }
}

/// The pools found for a command, and those that cannot be queried.
pub(crate) struct Respondents {
    /// Pools that can be queried.
    pub(crate) pools: Vec<Box<dyn PoolClient>>,
    /// Pools that could not be opened, which was reported.
    pub(crate) failed: Vec<String>,
    /// Whether something could not be opened.
    pub(crate) outcome: Outcome,
}

/// The pools on these devices, or the mounted ones if there are none; with `names` only those.
pub(crate) fn respondents(
    devices: &[String],
    names: &[String],
    console: &mut Console<'_>,
) -> Result<Respondents, Failure> {
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    if devices.is_empty() {
        let (pools, outcome) = match names {
            [] => mounted(console)?,
            names => (mounted_as(names)?, Ok(())),
        };
        return Ok(Respondents { pools, failed: Vec::new(), outcome });
    }
    let options = PoolOptions::new().device_paths(devices).force();
    let discovery = options.discover();
    let mut found = Respondents { pools: Vec::new(), failed: Vec::new(), outcome: Ok(()) };
    for error in discovery.unopened() {
        console.complain(error);
        found.outcome = Err(Failure::Told);
    }
    let alive = discovery.pools().iter().filter(|pool| pool.state() != PoolState::Destroyed);
    for pool in alive.filter(|pool| is_wanted(pool.name())) {
        match Pool::import(pool, &import_options(options.import())) {
            Ok(pool) => found.pools.push(Box::new(Local(PoolService::new(pool)))),
            Err(failure) => {
                console.complain(import_failure(&failure, Advice::IMPORT));
                found.failed.push(pool.name().to_owned());
                found.outcome = Err(Failure::Told);
            }
        }
    }
    found.pools.sort_by(|a, b| a.pool().cmp(b.pool()));
    Ok(found)
}

/// Commands open pools only briefly: recent blocks are not verified first, and there is no wait for
/// signs of writes by another host.
fn import_options(options: &ImportOptions) -> ImportOptions {
    ImportOptions {
        activity: ActivityCheck::Skip,
        missing_logs: MissingLogs::Ignore,
        verification: LoadVerification::None,
        ..options.clone()
    }
}

/// Advice for importing a pool that a command refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Advice<'a> {
    /// The command for a pool last used by another system.
    pub(crate) forced: &'a str,
    /// The option, or the command, for a pool that lacks log devices.
    pub(crate) without_logs: &'a str,
}

impl<'a> Advice<'a> {
    /// `zpool import`.
    pub(crate) const IMPORT: Self = Self { forced: "zpool import -f", without_logs: "-m" };

    /// A command that has no option for missing log devices.
    pub(crate) const fn of_forced(forced: &'a str) -> Self {
        Self { forced, without_logs: "zpool import -m" }
    }
}

/// OpenZFS's message for an import that failed.
pub(crate) fn import_failure(failure: &ImportFailure, advice: Advice<'_>) -> String {
    let name = &failure.name;
    match failure.error.as_ref() {
        ImportError::UnsupportedVersion { .. } => {
            format!("cannot import '{name}': pool is formatted using an unsupported ZFS version")
        }
        ImportError::LastUsedElsewhere { host, timestamp } => format!(
            "cannot import '{name}': pool was previously in use from another system.\n\
             Last accessed by {} (hostid={:x}) at {}\n\
             The pool can be imported, use '{}' to import the pool.",
            host.name.as_deref().unwrap_or("<unknown>"),
            host.id,
            Calendar::system().ctime(*timestamp),
            advice.forced
        ),
        ImportError::ActiveElsewhere { host } => format!(
            "cannot import '{name}': pool is imported on {} (hostid: 0x{:x})\n\
             Export the pool on the other system, then run 'zpool import'.",
            host.name.as_deref().unwrap_or("<unknown>"),
            host.id
        ),
        ImportError::HostIdRequired => format!(
            "Cannot import '{name}': pool has the multihost property on and the\n\
             system's hostid is not set. Set a unique hostid with the zgenhostid(8) command."
        ),
        ImportError::MissingLogs { logs } => {
            let option = advice.without_logs;
            let devices: String =
                service::missing_logs(logs).iter().map(|log| missing_vdev(log, 0)).collect();
            format!(
                "The devices below are missing or corrupted, use '{option}' to import the pool \
                 anyway:\n{devices}\n\
                 cannot import '{name}': one or more devices is currently unavailable"
            )
        }
        _ => failure.to_string(),
    }
}

/// The lines of a missing log vdev and its children.
fn missing_vdev(vdev: &VdevReport, depth: usize) -> String {
    let (indent, class) = ("  ".repeat(depth + 2), if depth == 0 { " [log]" } else { "" });
    let own = format!("\t{indent}{}{class}\n", NameStyle::default().name(vdev));
    vdev.children.iter().fold(own, |lines, child| lines + &missing_vdev(child, depth + 1))
}

/// Pools that could be imported from these devices, or from OpenZFS's default places.
pub(crate) fn importable(
    devices: &[PathBuf],
    console: &mut Console<'_>,
) -> Result<Vec<PoolReport>, Failure> {
    let options = match devices {
        [] => PoolOptions::new().sources(DeviceSource::defaults()),
        devices => PoolOptions::new().device_paths(devices),
    };
    let discovery = options.discover();
    for error in discovery.unopened().iter().filter(|_| !devices.is_empty()) {
        console.complain(error);
    }
    let examined = discovery.examine(&import_options(options.import()));
    Ok(examined.iter().map(service::importable).collect())
}
