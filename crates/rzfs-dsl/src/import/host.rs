//! The identity of this host, to check that a pool was not left open by another one (spec 01,
//! section 4.7).

use rzfs_format::config::LastHost;
use std::fs;

/// Where the Linux module shows its host id, in decimal.
const MODULE_PARAMETER: &str = "/sys/module/spl/parameters/spl_hostid";

/// Where the host id is kept: four bytes in the host's byte order.
const HOSTID_FILE: &str = "/etc/hostid";

/// The identity under which a host opens pools.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct HostIdentity {
    /// The host id; 0 when none was set.
    pub id: u32,
    /// The node name.
    pub name: Option<String>,
}

impl HostIdentity {
    /// The identity of this system: the module's parameter if it is loaded and set, else
    /// `/etc/hostid`.
    #[must_use]
    pub fn of_system() -> Self {
        let parameter = fs::read_to_string(MODULE_PARAMETER).ok();
        let file = fs::read(HOSTID_FILE).ok();
        let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { id: host_id(parameter.as_deref(), file.as_deref()), name: Some(name) }
    }

    /// Whether a configuration was last written by this host. A host without an id matches
    /// configurations without one.
    #[must_use]
    pub fn wrote(&self, last: &LastHost) -> bool {
        u64::from(self.id) == last.id
    }
}

fn host_id(parameter: Option<&str>, file: Option<&[u8]>) -> u32 {
    // The parameter is wider than a host id; the low half counts.
    let parameter = parameter.and_then(|text| text.trim().parse::<u64>().ok());
    match parameter.map(|id| id as u32) {
        Some(id) if id != 0 => id,
        _ => file
            .and_then(|bytes| bytes.first_chunk::<4>())
            .map_or(0, |bytes| u32::from_ne_bytes(*bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_comes_before_the_file() {
        let file = 0xdead_beef_u32.to_ne_bytes();
        assert_eq!(host_id(Some("3735928321\n"), Some(&file)), 0xdead_be01);
        assert_eq!(host_id(Some("0\n"), Some(&file)), 0xdead_beef);
        assert_eq!(host_id(None, Some(&file)), 0xdead_beef);
        assert_eq!(host_id(None, Some(&file[..3])), 0);
        assert_eq!(host_id(Some("none"), None), 0);
    }

    #[test]
    fn hosts_without_an_id_share_pools_without_one() {
        let nobody = HostIdentity::default();
        let last = |id| LastHost { id, name: None };
        assert!(nobody.wrote(&last(0)));
        assert!(!nobody.wrote(&last(1)));
        assert!(HostIdentity { id: 1, name: None }.wrote(&last(1)));
    }
}
