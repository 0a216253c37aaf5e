//! Block pointers in zdb's two notations.

use rzfs_format::block_pointer::{PointerKind, Protection};
use rzfs_format::{BlockPointer, ByteOrder, Dva};
use std::fmt;

/// A block pointer in full detail, on one line.
pub(crate) struct Full<'a>(pub(crate) &'a BlockPointer);

/// A block pointer as in lists of an object's blocks: addresses, sizes, fill, births, checksum.
pub(crate) struct Compact<'a> {
    pub(crate) pointer: &'a BlockPointer,
    /// Number of addresses to show.
    pub(crate) addresses: usize,
    /// Whether a list marks the block as freed.
    pub(crate) is_freed: bool,
}

/// The type of a pointer's object.
struct TypeName<'a>(&'a BlockPointer);

impl fmt::Display for TypeName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.object_type() {
            Ok(own) if own.is_self_described() => {
                let contents = if own.is_metadata() { "metadata" } else { "data" };
                write!(f, "bswap {contents} {}", own.name())
            }
            Ok(object_type) => f.write_str(object_type.name()),
            Err(_) => f.write_str("unknown"),
        }
    }
}

/// The kind of data in an embedded pointer; 0 for the block's own.
const fn embedded_type(pointer: &BlockPointer) -> u64 {
    pointer.words()[6] >> 40 & 0xff
}

fn write_checksum(f: &mut fmt::Formatter<'_>, pointer: &BlockPointer) -> fmt::Result {
    let [a, b, c, d] = pointer.checksum().0;
    write!(f, "cksum={a:016x}:{b:016x}:{c:016x}:{d:016x}")
}

impl fmt::Display for Full<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pointer = self.0;
        let (level, name) = (pointer.level(), TypeName(pointer));
        let (logical, birth) = (pointer.logical_size(), pointer.logical_birth());
        match pointer.kind() {
            PointerKind::Hole => {
                write!(f, "HOLE [L{level} {name}] size={logical:x}L birth={birth}L")
            }
            PointerKind::Redacted => {
                write!(f, "REDACTED [L{level} {name}] size={logical:x}L birth={birth}L")
            }
            PointerKind::Embedded => {
                let (kind, physical) = (embedded_type(pointer), pointer.embedded_size());
                let compression = pointer.compression().map_or("unknown", |c| c.name());
                write!(f, "EMBEDDED [L{level} {name}] et={kind} {compression} ")?;
                write!(f, "size={logical:x}L/{physical:x}P birth={birth}L")
            }
            PointerKind::Plain | PointerKind::Gang => write_located(f, pointer),
        }
    }
}

fn write_located(f: &mut fmt::Formatter<'_>, pointer: &BlockPointer) -> fmt::Result {
    for (index, dva) in pointer.dvas().enumerate() {
        write!(f, "DVA[{index}]=<{dva}> ")?;
    }
    let protection = match pointer.protection() {
        Protection::None => "unencrypted",
        Protection::Encrypted => {
            let [_, _, _, _, salt, iv, ..] = *pointer.words();
            write!(f, "salt={salt:x} iv={iv:x}:{:x} ", pointer.words()[11] >> 32)?;
            "encrypted"
        }
        Protection::Authenticated | Protection::Objset => "authenticated",
        Protection::IndirectMac => "indirect-MAC",
    };
    let checksum = pointer.checksum_function().map_or("unknown", |function| function.name());
    let compression = pointer.compression().map_or("unknown", |function| function.name());
    let order = if pointer.order() == ByteOrder::Little { "LE" } else { "BE" };
    let place = if pointer.is_gang() { "gang" } else { "contiguous" };
    let sharing = if pointer.is_dedup() { "dedup" } else { "unique" };
    let copies = match pointer.dvas().count() {
        0 => "hole",
        1 => "single",
        2 => "double",
        _ => "triple",
    };
    write!(
        f,
        "[L{level} {name}] {checksum} {compression} {protection} {order} {place} {sharing} \
         {copies} size={logical:x}L/{physical:x}P birth={birth}L/{physical_birth}P fill={fill} ",
        level = pointer.level(),
        name = TypeName(pointer),
        logical = pointer.logical_size(),
        physical = pointer.physical_size(),
        birth = pointer.logical_birth(),
        physical_birth = pointer.physical_birth(),
        fill = pointer.fill(),
    )?;
    write_checksum(f, pointer)
}

impl fmt::Display for Compact<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pointer = self.pointer;
        let (logical, birth) = (pointer.logical_size(), pointer.logical_birth());
        match pointer.kind() {
            PointerKind::Embedded => {
                let (kind, physical) = (embedded_type(pointer), pointer.embedded_size());
                write!(f, "EMBEDDED et={kind} {logical:x}L/{physical:x}P B={birth}")
            }
            PointerKind::Redacted => {
                write!(f, "REDACTED {logical:x}L B={birth}")
            }
            PointerKind::Hole => {
                if self.addresses == 1 {
                    let [high, low, ..] = *pointer.words();
                    write!(f, "{} ", Dva([high, low]))?;
                }
                write!(f, "{logical:x}L B={birth}")
            }
            PointerKind::Plain | PointerKind::Gang => {
                for dva in pointer.dvas().take(self.addresses) {
                    write!(f, "{dva} ")?;
                }
                let (physical, fill) = (pointer.physical_size(), pointer.fill());
                let physical_birth = pointer.physical_birth();
                write!(f, "{logical:x}L/{physical:x}P F={fill} B={birth}/{physical_birth} ")?;
                if self.is_freed {
                    write!(f, "FREE ")?;
                }
                write_checksum(f, pointer)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rzfs_format::VdevId;

    fn root() -> BlockPointer {
        let mut words = [0; 16];
        for (index, offset) in [0x5a_5000, 0x136_5000, 0x21a_c000].into_iter().enumerate() {
            let dva = Dva::new(VdevId(0), offset, 0x1000, false);
            words[index * 2..index * 2 + 2].copy_from_slice(&dva.0);
        }
        words[6] = 7 | 7 << 16 | 2 << 32 | 7 << 40 | 11 << 48 | 1 << 63;
        words[10] = 68;
        words[11] = 97;
        words[12..].copy_from_slice(&[
            0x2_769e_400c,
            0x977_1a2c_b972,
            0x12_3444_54f5_abc4,
            0x175d_aa6b_6b2a_7172,
        ]);
        BlockPointer::from_words(words)
    }

    #[test]
    fn root_pointer_of_a_real_pool() {
        assert_eq!(
            Full(&root()).to_string(),
            "DVA[0]=<0:5a5000:1000> DVA[1]=<0:1365000:1000> DVA[2]=<0:21ac000:1000> \
             [L0 DMU objset] fletcher4 uncompressed unencrypted LE contiguous unique triple \
             size=1000L/1000P birth=68L/68P fill=97 \
             cksum=00000002769e400c:000009771a2cb972:0012344454f5abc4:175daa6b6b2a7172"
        );
        assert_eq!(
            compact(&root(), 1).to_string(),
            "0:5a5000:1000 1000L/1000P F=97 B=68/68 \
             cksum=00000002769e400c:000009771a2cb972:0012344454f5abc4:175daa6b6b2a7172"
        );
    }

    fn compact(pointer: &BlockPointer, addresses: usize) -> Compact<'_> {
        Compact { pointer, addresses, is_freed: false }
    }

    #[test]
    fn lists_show_one_address_or_all_and_the_mark_of_freed_blocks() {
        let root = root();
        let text = Compact { is_freed: true, ..compact(&root, 3) }.to_string();
        let head =
            "0:5a5000:1000 0:1365000:1000 0:21ac000:1000 1000L/1000P F=97 B=68/68 FREE cksum=";
        assert!(text.starts_with(head), "{text}");
    }

    #[test]
    fn pointer_with_salt_and_iv() {
        let mut pointer = root();
        let words = pointer.words_mut();
        words[2..4].fill(0);
        words[4] = 0x1c43_9459_3fa0_8942;
        words[5] = 0xe0b8_b9bf_f16e_ed3f;
        words[6] = words[6] & !(0xff << 48) | 9 << 48 | 1 << 61;
        words[11] = 0x6272_1251 << 32;
        let text = Full(&pointer).to_string();
        let head = "DVA[0]=<0:5a5000:1000> salt=1c4394593fa08942 iv=e0b8b9bff16eed3f:62721251 \
                    [L0 ZIL intent log] fletcher4 uncompressed encrypted LE contiguous unique \
                    single size=1000L/1000P birth=68L/68P fill=0 cksum=";
        assert!(text.starts_with(head), "{text}");
    }

    #[test]
    fn holes_and_embedded_data() {
        assert_eq!(compact(&BlockPointer::HOLE, 1).to_string(), "0:0:0 200L B=0");
        assert_eq!(compact(&BlockPointer::HOLE, 3).to_string(), "200L B=0");
        assert_eq!(
            Full(&BlockPointer::HOLE).to_string(),
            "HOLE [L0 unallocated] size=200L birth=0L"
        );
        let mut words = [0; 16];
        words[6] = 0x1ff | 0x33 << 25 | 15 << 32 | 1 << 39 | 15 << 48 | 1 << 63;
        words[10] = 23;
        let embedded = BlockPointer::from_words(words);
        assert_eq!(compact(&embedded, 1).to_string(), "EMBEDDED et=0 200L/34P B=23");
        assert_eq!(
            Full(&embedded).to_string(),
            "EMBEDDED [L0 DSL props] et=0 lz4 size=200L/34P birth=23L"
        );
    }
}
