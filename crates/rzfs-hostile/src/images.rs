//! Damage written to images, for other programs to find.

use crate::case::{DamageKind, Subject, damage_labels};
use crate::random::Random;
use rzfs_blockdev::read_exact_at;
use rzfs_testkit::OverlayDevice;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

impl Subject {
    /// Damages its images according to the seed, and returns the kind of damage: sectors and whole
    /// members, or labels. Other damage of a case only happens after verification in memory.
    ///
    /// # Errors
    /// An image cannot be written.
    pub fn damage_images(&self, images: &[PathBuf], seed: u64) -> io::Result<DamageKind> {
        let mut random = Random::of_place(seed, &[0xda_4a6e]);
        let devices = self.devices().iter();
        let overlays: Vec<_> =
            devices.map(|device| OverlayDevice::new(Arc::clone(device))).collect();
        let kind = match random.once_in(3) {
            true => DamageKind::Labels,
            false => DamageKind::Devices,
        };
        match kind {
            DamageKind::Labels => damage_labels(&overlays, &mut random),
            _ => self.damage_devices(&overlays, &mut random),
        }
        for (overlay, image) in overlays.iter().zip(images) {
            store(overlay, &File::options().write(true).open(image)?)?;
        }
        if kind == DamageKind::Devices {
            damage_member(images, &mut random)?;
        }
        Ok(kind)
    }
}

/// Writes the damaged parts of a device to its image.
fn store(overlay: &OverlayDevice, image: &File) -> io::Result<()> {
    for range in overlay.damaged_ranges() {
        let len = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
        // A file cannot simulate read errors.
        if let Ok(bytes) = read_exact_at(overlay, range.start, len) {
            image.write_all_at(&bytes, range.start)?;
        }
    }
    Ok(())
}

/// Sometimes removes an image, truncates it, or copies its neighbour.
fn damage_member(images: &[PathBuf], random: &mut Random) -> io::Result<()> {
    let at = random.index(images.len());
    let (Some(image), Some(neighbour)) = (images.get(at), images.iter().cycle().nth(at + 1)) else {
        return Ok(());
    };
    match random.below(8) {
        0 if image != neighbour => fs::remove_file(image),
        1 if image != neighbour => fs::copy(neighbour, image).map(drop),
        2 => {
            let image = File::options().write(true).open(image)?;
            image.set_len(random.below(image.metadata()?.len()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_blockdev::{FileDevice, OpenOptions};
    use rzfs_testkit::Damage;

    #[test]
    fn an_image_reads_like_the_damaged_device() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        let contents: Vec<u8> = (0..200_000_u32).map(|at| (at / 512) as u8).collect();
        fs::write(&image, contents).unwrap();
        let device = FileDevice::open(&image, &OpenOptions::new()).unwrap();
        let overlay = OverlayDevice::new(Arc::new(device));
        overlay.damage(1000..5000, Damage::Garbage { seed: 7 });
        overlay.damage(4000..4001, Damage::Bytes(vec![0xff]));
        overlay.damage(90_000..100_000, Damage::From(512));
        let wanted = read_exact_at(&*overlay, 0, 196_608).unwrap().to_vec();
        let copy = dir.path().join("copy");
        fs::copy(&image, &copy).unwrap();
        store(&overlay, &File::options().write(true).open(&copy).unwrap()).unwrap();
        assert!(fs::read(&copy).unwrap()[..196_608] == wanted);
        assert!(fs::read(&image).unwrap()[..196_608] != wanted);
    }
}
