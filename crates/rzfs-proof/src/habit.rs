//! Special usage patterns of some pools.

use crate::fill::noise;
use crate::{Files, Habit, OpenPool, ProofError};
use rzfs_hostile::Random;
use rzfs_zpl::live::{AttributeChange, LiveFileSystem, QuotaOwner, QuotaUnit};

/// The property value `dedup=sha256`.
const SHA256: u64 = 8;
/// Number of blocks shared in either way.
const SHARED: usize = 300_000;
/// Files of each user with quotas.
const OWNED: u32 = 3;

/// Limits of the root file system in bytes; never reached.
pub const LIMITS: [(&str, u64); 4] = [
    ("quota", 290 << 20),
    ("refquota", 280 << 20),
    ("reservation", 40 << 20),
    ("refreservation", 16 << 20),
];

/// Quotas of users, groups and projects, named as in `zfs get`.
pub const QUOTAS: [(&str, QuotaOwner, QuotaUnit, u64); 6] = [
    ("userquota@1001", QuotaOwner::User, QuotaUnit::Bytes, 1 << 20),
    ("groupquota@1001", QuotaOwner::Group, QuotaUnit::Bytes, 2 << 20),
    ("projectquota@1001", QuotaOwner::Project, QuotaUnit::Bytes, 3 << 20),
    ("userobjquota@1001", QuotaOwner::User, QuotaUnit::Objects, 500),
    ("groupobjquota@1001", QuotaOwner::Group, QuotaUnit::Objects, 600),
    ("projectobjquota@1001", QuotaOwner::Project, QuotaUnit::Objects, 700),
];
/// The id with these quotas.
const LIMITED: u32 = 1001;

impl Habit {
    /// Prepares a new pool for it.
    ///
    /// # Errors
    /// A property cannot be set.
    pub fn prepare(self, open: &OpenPool) -> Result<(), ProofError> {
        let (name, fs) = open.root()?;
        match self {
            Self::Plain => {}
            Self::Sharing => open.pool.set_property(name, "dedup", SHA256.into())?,
            Self::Limits => {
                for (property, value) in LIMITS {
                    open.pool.set_property(name, property, value.into())?;
                }
                for (property, owner, unit, limit) in QUOTAS {
                    let set = fs.set_quota(owner, unit, LIMITED.into(), Some(limit));
                    set.map_err(|source| ProofError::at(property, source))?;
                }
            }
        }
        Ok(())
    }

    /// Performs its operations on the files of one file system.
    ///
    /// # Errors
    /// Something fails that should not.
    pub fn follow(
        self,
        fs: &LiveFileSystem,
        step: u64,
        random: &mut Random,
    ) -> Result<(), ProofError> {
        match self {
            Self::Plain => Ok(()),
            Self::Sharing => share(&Files(fs), step, random),
            Self::Limits => run_into_limits(&Files(fs), step, random),
        }
    }
}

/// Copies files of earlier steps, rewrites existing data, and removes some of it.
fn share(files: &Files<'_>, step: u64, random: &mut Random) -> Result<(), ProofError> {
    files.mkdir_if_missing("shared")?;
    let names = files.names("shared")?;
    for (number, name) in names.iter().enumerate() {
        match random.below(4) {
            0 => {
                let len = 1 + random.below(2 * SHARED as u64);
                let copy = format!("shared/c{step}-{number}");
                files.copy(&format!("shared/{name}"), &copy, len)?;
            }
            1 if names.len() > 4 => files.unlink(&format!("shared/{name}"))?,
            2 => files.write(&format!("shared/{name}"), random.below(200_000), b"changed")?,
            _ => {}
        }
    }
    for number in 0..3 {
        let contents = noise(random.below(3), SHARED);
        files.put(&format!("shared/n{step}-{number}"), &contents)?;
    }
    Ok(())
}

/// Assigns files to a user, a group and a project, and writes them until the quotas are reached.
fn run_into_limits(files: &Files<'_>, step: u64, random: &mut Random) -> Result<(), ProofError> {
    files.mkdir_if_missing("limited")?;
    for number in 0..OWNED {
        let name = format!("limited/l{step}-{number}");
        files.put(&name, b"")?;
        let (id, project) = (Some(LIMITED), (number == 2).then_some(LIMITED));
        let (uid, gid) = match number {
            0 => (id, None),
            1 => (None, id),
            _ => (None, None),
        };
        let owners = AttributeChange { uid, gid, project, ..AttributeChange::default() };
        unless_over_quota(files.set(&name, owners))?;
        let contents = noise(random.draw(), 900_000);
        unless_over_quota(files.write(&name, 0, &contents))?;
    }
    Ok(())
}

/// Accepts a refusal for lack of room.
fn unless_over_quota(result: Result<(), ProofError>) -> Result<(), ProofError> {
    const EDQUOT: i32 = 122;
    match result {
        Err(ProofError::File { source, .. }) if source.errno() == EDQUOT => Ok(()),
        result => result,
    }
}
