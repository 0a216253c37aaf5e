//! `zdb -R`: shows the data at an address of a vdev.
//!
//! ```text
//! VDEV : OFFSET : [LSIZE/]PSIZE [: FLAGS]      numbers in hex
//! ```
//! VDEV is the number of a top-level vdev, numbers separated by dots that lead to a leaf (`0.1`),
//! or the path of a leaf. Failures are reported, and the next word is processed; as with OpenZFS's
//! zdb they do not affect the exit status.

mod compressed;
mod dump;
mod request;

use super::error::ZdbError;
use super::session::{Session, Verdict};
use super::text::pointer::Full;
use request::{Flags, Request};
use rzfs_blockdev::read_exact_at;
use rzfs_codec::checksum::{Salt, checksum};
use rzfs_dsl::pool::Pool;
use rzfs_format::checksum::ChecksumFunction;
use rzfs_format::label::START_SIZE;
use rzfs_format::{BlockPointer, ByteOrder, Dva, Txg, gang};
use rzfs_vdev::Vdev;
use std::io;

/// Checksum functions shown for a block.
const CHECKSUMS: [ChecksumFunction; 7] = [
    ChecksumFunction::Fletcher2,
    ChecksumFunction::Fletcher4,
    ChecksumFunction::Sha256,
    ChecksumFunction::Sha512,
    ChecksumFunction::Skein,
    ChecksumFunction::EdonR,
    ChecksumFunction::Blake3,
];

/// The txg of data in the layout of the vdev's creation.
const FIRST_TXG: Txg = Txg(4);

/// Shows the blocks given by the words after the pool.
pub(crate) fn run(session: &mut Session<'_>, pool: &Pool) -> Result<Verdict, ZdbError> {
    let words = session.arguments.targets.get(1..).unwrap_or_default();
    if words.is_empty() {
        return Err(ZdbError::Usage("-R needs VDEV:OFFSET:[LSIZE/]PSIZE[:FLAGS]".into()));
    }
    for word in words {
        match Request::parse(word, session.out)? {
            Ok(request) => show(session, pool, &request)?,
            Err(problem) => writeln!(session.out, "{problem}")?,
        }
    }
    Ok(Verdict::Clean)
}

fn show(session: &mut Session<'_>, pool: &Pool, request: &Request<'_>) -> io::Result<()> {
    let Some(vdev) = find(pool, request.vdev) else {
        return writeln!(session.out, "***Invalid vdev: {}", request.vdev);
    };
    match path(vdev) {
        Some(path) => writeln!(session.notes, "Found vdev: {path}")?,
        None => writeln!(session.notes, "Found vdev type: {}", vdev.kind().name())?,
    }
    let stored = match read(pool, vdev, request) {
        Ok(stored) => stored,
        Err(problem) => {
            return writeln!(session.out, "Read of {} failed, error: {problem}", request.text);
        }
    };
    let mut block = stored.clone();
    if request.flags.decompress {
        match compressed::expand(session, &stored, request)? {
            Some(expanded) => block = expanded,
            None => return writeln!(session.out, "Decompress of {} failed", request.text),
        }
    }
    show_block(session, request, &block)?;
    let Flags { checksums, raw, gang, .. } = request.flags;
    if checksums && !raw && !gang { show_checksums(session, pool, &stored) } else { Ok(()) }
}

/// Shows a block as requested by the flags.
fn show_block(session: &mut Session<'_>, request: &Request<'_>, block: &[u8]) -> io::Result<()> {
    let flags = request.flags;
    let order = if flags.swap { ByteOrder::NATIVE.swapped() } else { ByteOrder::NATIVE };
    let out = &mut *session.out;
    if let Some(offset) = flags.pointer {
        let pointer = usize::try_from(offset)
            .ok()
            .and_then(|offset| block.get(offset..)?.get(..BlockPointer::SIZE))
            .and_then(|bytes| BlockPointer::decode(bytes, order).ok())
            .filter(|pointer| pointer.validate().is_ok());
        return match pointer {
            Some(pointer) => writeln!(out, "{}", Full(&pointer)),
            None => writeln!(out, "invalid block pointer at this DVA"),
        };
    }
    if flags.raw {
        return dump::raw(out, block, flags.swap);
    }
    if flags.indirect {
        let pointers = block.chunks_exact(BlockPointer::SIZE);
        let pointers = pointers.filter_map(|bytes| BlockPointer::decode(bytes, order).ok());
        return pointers.into_iter().try_for_each(|one| writeln!(out, "{}", Full(&one)));
    }
    if flags.gang {
        return match gang::members(block, order) {
            Ok(members) => members.iter().try_for_each(|member| writeln!(out, "{}", Full(member))),
            Err(error) => writeln!(out, "{error}"),
        };
    }
    dump::words(out, request.text, block, flags.swap)
}

fn show_checksums(session: &mut Session<'_>, pool: &Pool, stored: &[u8]) -> io::Result<()> {
    let salt = pool.salt().cloned().unwrap_or_else(|| Salt::new([0; Salt::SIZE]));
    writeln!(session.out)?;
    for function in CHECKSUMS {
        let [a, b, c, d] = checksum(function, ByteOrder::NATIVE, stored, &salt).0;
        let name = function.name();
        writeln!(session.out, "{name:>12}\tcksum={a:016x}:{b:016x}:{c:016x}:{d:016x}")?;
    }
    Ok(())
}

/// Finds the vdev with this name.
fn find<'a>(pool: &'a Pool, name: &str) -> Option<Vdev<'a>> {
    let by_path = pool.vdevs().leaves().find(|leaf| path(*leaf).as_deref() == Some(name));
    by_path.or_else(|| {
        let mut vdev = pool.vdevs().root();
        for number in name.split('.') {
            let number: u64 = number.parse().ok()?;
            vdev = vdev.children().find(|child| child.id() == number)?;
        }
        Some(vdev)
    })
}

/// The current, or last, path of a leaf.
fn path(vdev: Vdev<'_>) -> Option<String> {
    let last = || vdev.own_config().hints.path.as_ref().map(|path| path.to_text().into_owned());
    vdev.device().map(|device| device.name().to_owned()).or_else(last)
}

/// The bytes at the address: through a top-level vdev's redundancy, or a leaf's own.
fn read(pool: &Pool, vdev: Vdev<'_>, request: &Request<'_>) -> Result<Vec<u8>, String> {
    if let Some(id) = vdev.vdev_id() {
        let tree = pool.vdevs();
        let asize = tree.allocated_size(id, request.psize, FIRST_TXG).unwrap_or(request.psize);
        let dva = Dva::new(id, request.offset, asize, false);
        let read = tree.read_unverified(dva, request.psize, FIRST_TXG);
        return read.map(|data| data.to_vec()).map_err(|error| error.to_string());
    }
    let device = vdev.device().ok_or("no such device")?;
    let position = request.offset.saturating_add(START_SIZE);
    let size = usize::try_from(request.psize).unwrap_or(usize::MAX);
    let read = read_exact_at(device.as_ref(), position, size);
    read.map(|data| data.to_vec()).map_err(|error| error.to_string())
}
