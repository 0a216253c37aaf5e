//! `zpool initialize` and `zpool trim`.

use super::super::events::Events;
use super::pool::is_named;
use crate::mount::open::Open;
use crate::protocol::{Erasure, Refusal, SweepKind, SweepRequest};
use rzfs::WritablePool;
use rzfs_dsl::live::{ChangeError, SweepEvent};
use rzfs_format::Guid;
use rzfs_vdev::{Vdev, VdevTree};
use std::fmt::Display;
use std::sync::Arc;

/// Carries out an order. Refusals for some devices are reported one by one, and the order holds for
/// the others.
pub(super) fn sweep(open: &Open, request: &SweepRequest) -> Result<Vec<String>, Refusal> {
    let verb = match request.kind {
        SweepKind::Initialize => "initialize",
        SweepKind::Trim => "trim",
    };
    let live = open.writable_to(verb)?.live();
    let vdevs = live.vdevs();
    let line = |device: &str, reason: &dyn Display| format!("cannot {verb} '{device}': {reason}");
    let mut complaints = Vec::new();
    let mut leaves: Vec<Guid> = Vec::new();
    for device in &request.devices {
        match vdevs.vdevs().find(|vdev| is_named(*vdev, device)) {
            Some(vdev) => leaves.push(vdev.guid()),
            None => complaints.push(line(device, &ChangeError::NoSuchDevice)),
        }
    }
    if request.devices.is_empty() {
        leaves = vdevs.leaves().map(Vdev::guid).collect();
    }
    let name = |guid: Guid| name(&vdevs, guid);
    if complaints.is_empty() {
        let refused = match request.erasure {
            // No supported device guarantees that.
            Erasure::Secure => {
                leaves.iter().map(|leaf| (*leaf, ChangeError::TrimUnsupported)).collect()
            }
            Erasure::Plain => {
                live.sweep(request.kind, &leaves, request.order).map_err(|error| {
                    Refusal::new(format!("cannot {verb} '{}': {error}", live.name()))
                })?
            }
        };
        // For a whole pool, devices without TRIM support are skipped.
        let is_whole = request.devices.is_empty() && refused.len() < leaves.len();
        let counts =
            |error: &ChangeError| !(is_whole && matches!(error, ChangeError::TrimUnsupported));
        let counting = refused.iter().filter(|(_, error)| counts(error));
        complaints.extend(counting.map(|(leaf, error)| line(&name(*leaf), error)));
    }
    match complaints.is_empty() {
        true => Ok(complaints),
        false => Err(Refusal::new(complaints.join("\n"))),
    }
}

fn name(vdevs: &VdevTree, guid: Guid) -> String {
    vdevs.by_guid(guid).map_or_else(|| guid.to_string(), |leaf| leaf.name().to_owned())
}

/// Records events for the sweeps of a pool.
pub(in super::super) fn observe(pool: &WritablePool, events: &Arc<Events>) {
    let events = Arc::clone(events);
    pool.live().observe_sweeps(Box::new(move |kind, news, leaf| {
        // Initializations have no events.
        if kind == SweepKind::Initialize {
            return;
        }
        let what = match news {
            SweepEvent::Started => "start",
            SweepEvent::Resumed => "resume",
            SweepEvent::Suspended => "suspend",
            SweepEvent::Cancelled => "cancel",
            SweepEvent::Finished => "finish",
        };
        events.note_leaf(&format!("trim_{what}"), leaf);
    }));
}
