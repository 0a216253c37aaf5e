//! The bytes of an image.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

const PAGE: usize = 4096;

/// The bytes of an image, zeros except for written pages. A copy shares its pages.
#[derive(Clone, Debug, Default)]
pub(super) struct Medium(BTreeMap<u64, Arc<[u8; PAGE]>>);

/// A part of a range that is in one page.
struct Part {
    page: u64,
    /// Where in the page.
    within: usize,
    /// Where in the range.
    at: usize,
    len: usize,
}

fn parts(offset: u64, len: usize) -> impl Iterator<Item = Part> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let place = offset + at as u64;
        let within = (place % PAGE as u64) as usize;
        let part =
            Part { page: place / PAGE as u64, within, at, len: (PAGE - within).min(len - at) };
        at += part.len;
        (part.len > 0).then_some(part)
    })
}

impl Medium {
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) {
        for Part { page, within, at, len } in parts(offset, into.len()) {
            match self.0.get(&page) {
                Some(bytes) => into[at..at + len].copy_from_slice(&bytes[within..within + len]),
                None => into[at..at + len].fill(0),
            }
        }
    }

    pub(super) fn write(&mut self, offset: u64, from: &[u8]) {
        for Part { page, within, at, len } in parts(offset, from.len()) {
            let bytes = self.0.entry(page).or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(bytes)[within..within + len].copy_from_slice(&from[at..at + len]);
        }
    }

    /// Saves it as a sparse file.
    pub(super) fn save(&self, path: &Path, size: u64) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(size)?;
        self.0.iter().try_for_each(|(page, bytes)| file.write_all_at(&**bytes, page * PAGE as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_across_pages_is_read_and_a_copy_keeps_what_it_had() {
        let mut medium = Medium::default();
        medium.write(PAGE as u64 - 3, &[7; 6]);
        let copy = medium.clone();
        medium.write(PAGE as u64, &[9]);
        let mut seen = [1; 8];
        medium.read(PAGE as u64 - 4, &mut seen);
        assert_eq!(seen, [0, 7, 7, 7, 9, 7, 7, 0]);
        copy.read(PAGE as u64 - 4, &mut seen);
        assert_eq!(seen, [0, 7, 7, 7, 7, 7, 7, 0]);
    }
}
