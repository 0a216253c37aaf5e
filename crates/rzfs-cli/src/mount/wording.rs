//! Messages for a pool that is not served, depending on the command.

use crate::source::{Advice, import_failure};
use rzfs::OpenError;
use rzfs_dsl::live::NotWritable;
use rzfs_format::property::PoolProperty;
use rzfs_server::request::{Access, Choice, ServeRequest};
use rzfs_server::{ServeError, Unmountable};

/// The command that determines the messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Wording {
    /// `rzfs mount`.
    Mount { access: Access, choice: Choice, has_directory: bool },
    /// `zpool create`.
    Create { pool: String, has_alternate_root: bool },
    /// `zpool import`.
    Import { has_alternate_root: bool, access: Access },
}

impl Wording {
    /// The wording for the command behind a request.
    pub(super) fn of(request: &ServeRequest) -> Self {
        match request {
            ServeRequest::Mount(request) => Self::Mount {
                access: request.options.access,
                choice: request.choice,
                has_directory: request.directory.is_some(),
            },
            ServeRequest::Create(request) => {
                let is_root = |(name, _): &(String, String)| name == PoolProperty::AltRoot.name();
                let has_alternate_root = request.properties.iter().any(is_root);
                Self::Create { pool: request.pool.clone(), has_alternate_root }
            }
            ServeRequest::Import(request) => Self::Import {
                has_alternate_root: request.alternate_root.is_some(),
                access: request.access,
            },
        }
    }

    /// Advice if this user lacks permission for directories named by properties.
    pub(super) fn where_denied(&self) -> Option<String> {
        match self {
            Self::Mount { has_directory: false, .. } => {
                Some("name a directory: rzfs mount IMAGE DIRECTORY".to_owned())
            }
            // An alternate root prefixes all mount points.
            Self::Create { pool, has_alternate_root: false } => Some(format!(
                "'{pool}' was created and is imported: 'zfs set mountpoint=DIRECTORY {pool}', then \
                 'zfs mount {pool}' mounts it ('zpool create -m DIRECTORY' or '-R DIRECTORY' does \
                 so at once)"
            )),
            Self::Import { has_alternate_root: false, access } => Some(match access {
                Access::ReadWrite => "the pool is imported: 'zfs set mountpoint=DIRECTORY POOL', \
                     then 'zfs mount POOL' mounts it ('zpool import -R DIRECTORY' does so at once)"
                    .to_owned(),
                Access::ReadOnly => "the pool is imported: 'zpool import -R DIRECTORY' mounts it \
                     below a directory, once it is exported"
                    .to_owned(),
            }),
            Self::Mount { .. } | Self::Create { .. } | Self::Import { .. } => None,
        }
    }

    /// The message for an error.
    pub(super) fn of_error(&self, error: &ServeError) -> String {
        match error {
            ServeError::Open(error) => self.not_opened(error),
            ServeError::NameTaken(pool) => self.taken(pool),
            ServeError::NothingToMount { pool, reason } => {
                format!("{error} {}", self.why_nothing(pool, reason))
            }
            error => error.to_string(),
        }
    }

    /// The message if another pool with the name is in use.
    fn taken(&self, pool: &str) -> String {
        match self {
            Self::Mount { .. } => {
                format!("cannot mount '{pool}': a pool with that name is mounted")
            }
            Self::Create { .. } => format!("cannot create '{pool}': pool already exists"),
            Self::Import { .. } => format!(
                "cannot import '{pool}': a pool with that name already exists\n\
                 use the form 'zpool import <pool | id> <newpool>' to give it a new name"
            ),
        }
    }

    /// Why nothing of a pool is mounted, with advice.
    fn why_nothing(&self, pool: &str, reason: &Unmountable) -> String {
        let why = match reason {
            Unmountable::CanMount(value) => format!("canmount={value}"),
            Unmountable::MountPoint(value) => format!("mountpoint={value}"),
            Unmountable::Missing => "no file system".to_owned(),
        };
        let next = match self {
            Self::Mount { choice: Choice::All, .. } => {
                "with a directory to mount at, it does not need a mount point"
            }
            Self::Mount { .. } | Self::Create { .. } | Self::Import { .. } => {
                "'rzfs mount -a ... DIRECTORY' mounts all of its file systems"
            }
        };
        format!("('{pool}' has {why}); {next}")
    }

    fn not_opened(&self, error: &OpenError) -> String {
        let (advice, access, for_reading) = match self {
            Self::Mount { access, .. } => (Advice::of_forced("rzfs mount -f"), *access, "-o ro"),
            Self::Import { access, .. } => (Advice::IMPORT, *access, "-o readonly=on"),
            Self::Create { .. } => return error.to_string(),
        };
        let message = match error {
            OpenError::Import(failure) => import_failure(failure, advice),
            OpenError::NotWritable { pool, source } => not_writable(pool, source),
            OpenError::Device(device) if error.allows_read_only() => {
                format!("{device}\nIt can only be read.")
            }
            error => error.to_string(),
        };
        match access == Access::ReadWrite && error.allows_read_only() {
            true => format!("{message}\nThe pool can be imported using '{for_reading}'."),
            false => message,
        }
    }
}

/// What is said about a pool that can only be read.
fn not_writable(pool: &str, reason: &NotWritable) -> String {
    let refused = format!("cannot import '{pool}': unsupported version or feature");
    match reason {
        NotWritable::Features { names } => {
            let features: String = names.iter().map(|name| format!("\t{name}\n")).collect();
            format!(
                "Writing to the pool takes features that this software does not have:\n\
                 {features}\
                 {refused}"
            )
        }
        reason => format!("cannot import '{pool}': {reason}"),
    }
}
