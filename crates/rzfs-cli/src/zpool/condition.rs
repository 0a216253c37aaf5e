//! What is said of the condition of a pool: conditions, layout and message numbers are OpenZFS's
//! (spec 09, sections 2.2 and 2.6), sentences are our own.

mod import;
mod status;

pub(crate) use import::{ImportProspect, for_import};
pub(crate) use status::for_status;

use rzfs_server::protocol::PoolStatus;
use std::io::{self, Write};

/// Where OpenZFS explains its messages.
const MESSAGES: &str = "https://openzfs.github.io/openzfs-docs/msg";

/// The texts of a condition. A line break in them is followed by the TAB that OpenZFS prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Explanation {
    /// The problem; empty if there is none.
    pub(crate) status: &'static str,
    /// The advice.
    pub(crate) action: &'static str,
    /// Whether the names of features belong below what is the matter.
    pub(crate) announces_features: bool,
    /// Last part of the message's address.
    pub(crate) id: Option<&'static str>,
}

/// The texts for a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Texts {
    status: &'static str,
    action: &'static str,
}

const fn explain(status: &'static str, action: &'static str) -> Texts {
    Texts { status, action }
}

impl Texts {
    const fn about(self, condition: PoolStatus) -> Explanation {
        let Self { status, action } = self;
        Explanation {
            status,
            action,
            announces_features: matches!(
                condition,
                PoolStatus::UnsupportedFeatures | PoolStatus::UnsupportedFeaturesForWriting
            ),
            id: condition.message_id(),
        }
    }
}

impl Explanation {
    /// Prints `status:`, `action:` and `see:`; features follow a status that introduces them.
    pub(crate) fn print(&self, features: &[String], out: &mut dyn Write) -> io::Result<()> {
        if !self.status.is_empty() {
            writeln!(out, "status: {}", self.status.replace('\n', "\n\t"))?;
            if self.announces_features {
                features.iter().try_for_each(|feature| writeln!(out, "\t{feature}"))?;
            }
        }
        writeln!(out, "action: {}", self.action.replace('\n', "\n\t"))?;
        self.address().map_or(Ok(()), |address| writeln!(out, "   see: {address}"))
    }

    /// The address of the explanation.
    pub(crate) fn address(&self) -> Option<String> {
        self.id.map(|id| format!("{MESSAGES}/{id}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_server::protocol::Erratum;

    /// Subcommands of `zpool` that only OpenZFS has.
    const ABSENT: [&str; 6] = ["attach", "detach", "offline", "online", "replace", "scrub"];

    #[test]
    fn nobody_is_advised_to_use_what_only_openzfs_has() {
        let mut statuses = vec![
            PoolStatus::GuidSum,
            PoolStatus::FaultedNoReplicas,
            PoolStatus::MissingNoReplicas,
            PoolStatus::CorruptLabelNoReplicas,
            PoolStatus::MissingNewer,
            PoolStatus::CorruptPool,
            PoolStatus::CorruptData,
            PoolStatus::Faulted,
            PoolStatus::Missing,
            PoolStatus::CorruptLabel,
            PoolStatus::LacksData,
            PoolStatus::Failing,
            PoolStatus::IoFailureWait,
            PoolStatus::Offline,
            PoolStatus::Removed,
            PoolStatus::Resilvering,
            PoolStatus::NonNativeAshift,
        ];
        statuses.extend(Erratum::ALL.map(PoolStatus::Erratum));
        for pool in statuses {
            let listed = for_import(pool, ImportProspect::Degraded);
            for Explanation { status, action, .. } in for_status(pool).into_iter().chain([listed]) {
                let names = |command: &&str| action.contains(&format!("zpool {command}"));
                let only_there = ABSENT.iter().any(names);
                assert!(!only_there || action.contains("OpenZFS"), "{pool:?}: {action}");
                assert!(!status.contains("to correct"), "{pool:?}: {status}");
            }
        }
    }
}
