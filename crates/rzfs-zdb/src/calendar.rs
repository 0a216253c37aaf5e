//! Times in the formats of OpenZFS's commands, in the time zone of the environment (spec 09,
//! section 1.3).

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The time zone of displayed times; tests use UTC.
#[derive(Clone, Debug)]
pub struct Calendar(TimeZone);

impl Calendar {
    /// The zone from `TZ` or the system's configuration.
    #[must_use]
    pub fn system() -> Self {
        Self(TimeZone::system())
    }

    /// Universal time.
    #[must_use]
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// Property `creation`: `Sat Nov 21  2:15 2026`, the hour padded with a space.
    #[must_use]
    pub fn creation(&self, seconds: u64) -> String {
        self.format(seconds, "%a %b %e %k:%M %Y")
    }

    /// Property `snapshots_changed`: `Sat Nov 21  2:15:08 2026`.
    #[must_use]
    pub fn change(&self, seconds: u64) -> String {
        self.format(seconds, "%a %b %e %k:%M:%S %Y")
    }

    /// Times in `zpool status`, as ctime(3) writes them: `Sat Nov 21 02:19:05 2026`.
    #[must_use]
    pub fn ctime(&self, seconds: u64) -> String {
        self.format(seconds, "%a %b %e %H:%M:%S %Y")
    }

    /// Times in a pool's history: `2026-11-21.02:15:22`.
    #[must_use]
    pub fn history(&self, seconds: u64) -> String {
        self.format(seconds, "%Y-%m-%d.%H:%M:%S")
    }

    /// `-T d` and the times in JSON: `Sat Nov 21 02:15:22 UTC 2026`.
    #[must_use]
    pub fn date(&self, seconds: u64) -> String {
        self.format(seconds, "%a %b %e %H:%M:%S %Z %Y")
    }

    /// Progress of `zfs send -v`: `02:15:22`.
    #[must_use]
    pub fn time_of_day(&self, seconds: u64) -> String {
        self.format(seconds, "%H:%M:%S")
    }

    /// Access and modification times in `rzfs ls` and `rzfs stat`.
    #[must_use]
    pub fn file_time(&self, seconds: i64, nanoseconds: u32) -> String {
        let Some(time) = i32::try_from(nanoseconds)
            .ok()
            .and_then(|nanoseconds| Timestamp::new(seconds, nanoseconds).ok())
        else {
            return format!("@{seconds}.{nanoseconds:09}");
        };
        time.to_zoned(self.0.clone()).strftime("%Y-%m-%d %H:%M:%S.%9f %z").to_string()
    }

    /// Times of events: `Nov 21 2026 02:18:57.592000000`.
    #[must_use]
    pub fn event(&self, seconds: u64, nanoseconds: u32) -> String {
        format!("{}.{nanoseconds:09}", self.format(seconds, "%b %e %Y %H:%M:%S"))
    }

    /// Times outside the calendar's range are shown as seconds since the epoch.
    fn format(&self, seconds: u64, pattern: &str) -> String {
        let time = i64::try_from(seconds).ok().and_then(|s| Timestamp::from_second(s).ok());
        match time {
            Some(time) => time.to_zoned(self.0.clone()).strftime(pattern).to_string(),
            None => seconds.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_laid_out_as_openzfs_does() {
        let calendar = Calendar::utc();
        let early = 1_795_227_308; // Sat Nov 21 02:15:08 UTC 2026
        assert_eq!(calendar.creation(early), "Sat Nov 21  2:15 2026");
        assert_eq!(calendar.change(early), "Sat Nov 21  2:15:08 2026");
        assert_eq!(calendar.ctime(early), "Sat Nov 21 02:15:08 2026");
        assert_eq!(calendar.date(early), "Sat Nov 21 02:15:08 UTC 2026");
        assert_eq!(calendar.event(early, 592_000_000), "Nov 21 2026 02:15:08.592000000");
        assert_eq!(calendar.creation(0), "Thu Jan  1  0:00 1970");
        assert_eq!(calendar.creation(u64::MAX), u64::MAX.to_string());
        assert_eq!(calendar.file_time(early as i64, 5), "2026-11-21 02:15:08.000000005 +0000");
        assert_eq!(calendar.file_time(i64::MAX, 5), "@9223372036854775807.000000005");
    }
}
