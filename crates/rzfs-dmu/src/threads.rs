//! Threads for work that can be done with fewer of them.

use std::io;

/// Starts this many threads, or as many as the system allows: `start` starts the next one, with
/// this number. Callers must be able to do without any.
pub fn start_up_to<T>(wanted: usize, start: impl FnMut(usize) -> io::Result<T>) -> Vec<T> {
    (0..wanted).map(start).map_while(Result::ok).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the threads started when the system allows only so many.
    fn started(wanted: usize, given: usize) -> Vec<usize> {
        let mut asked = 0;
        let threads = start_up_to(wanted, |number| {
            asked += 1;
            if number < given { Ok(number) } else { Err(io::ErrorKind::WouldBlock.into()) }
        });
        assert_eq!(asked, wanted.min(given + 1), "who is refused does not ask again");
        threads
    }

    #[test]
    fn there_are_as_many_threads_as_the_system_gives() {
        assert_eq!(started(3, 9), [0, 1, 2]);
        assert_eq!(started(3, 2), [0, 1]);
        assert!(started(3, 0).is_empty() && started(0, 9).is_empty());
    }
}
