//! The properties of vdevs (spec 09, section 5.3). This software sets none of them.

use super::description::{Description, read_only};
use super::pool::HEALTH;
use super::table::properties;
use super::values::NumberFormat::{Percent, Plain, Scaled};
use super::values::Values;
use super::values::Values::{Number, Text};

#[derive(Clone, Copy, Debug)]
struct Entry {
    description: Description,
}

const fn of(name: &'static str, header: &'static str, values: Values) -> Entry {
    Entry { description: read_only(name, header, values) }
}

properties! {
    /// A property of vdevs, in the order of `zpool get all POOL VDEV`.
    VdevProperty: Entry {
        /// Its name, which `zpool get all` leaves out.
        Name = of("name", "NAME", Text);
        /// How much of its space is allocated.
        Capacity = of("capacity", "CAP", Number(Percent));
        /// Its state.
        State = of("state", "STATE", HEALTH);
        /// A number that no other vdev has.
        Guid = of("guid", "GUID", Number(Plain));
        /// Space of its devices that can be allocated.
        Asize = of("asize", "ASIZE", Number(Scaled));
        /// The size of its device.
        Psize = of("psize", "PSIZE", Number(Scaled));
        /// The log2 of its sector size.
        Ashift = of("ashift", "ASHIFT", Number(Plain));
        /// Its space.
        Size = of("size", "SIZE", Number(Scaled));
        /// Space that is not allocated.
        Free = of("free", "FREE", Number(Scaled));
        /// Space that is allocated.
        Allocated = of("allocated", "ALLOC", Number(Scaled));
        /// A text for people.
        Comment = of("comment", "COMMENT", Text);
        /// Space that its devices have and it does not use yet.
        ExpandSize = of("expandsize", "EXPANDSZ", Number(Scaled));
        /// How scattered its free space is.
        Fragmentation = of("fragmentation", "FRAG", Number(Percent));
        /// The size of its boot partition.
        BootSize = of("bootsize", "BOOTSIZE", Number(Scaled));
        /// How many of its devices may fail.
        Parity = of("parity", "PARITY", Number(Plain));
        /// Where its device is.
        Path = of("path", "PATH", Text);
        /// The device's own identity.
        DevId = of("devid", "DEVID", Text);
        /// The place of its device.
        PhysPath = of("physpath", "PHYSPATH", Text);
        /// The place of its device in an enclosure.
        EncPath = of("encpath", "ENCPATH", Text);
        /// The part that is replaced when it fails.
        Fru = of("fru", "FRU", Text);
        /// The vdev that it is a part of.
        Parent = of("parent", "PARENT", Text);
        /// Its parts.
        Children = of("children", "CHILDREN", Text);
        /// How many parts it has.
        NumChildren = of("numchildren", "NUMCHILD", Number(Plain));
        /// Reads that failed.
        ReadErrors = of("read_errors", "RDERR", Number(Scaled));
        /// Writes that failed.
        WriteErrors = of("write_errors", "WRERR", Number(Scaled));
        /// Reads that returned wrong data.
        ChecksumErrors = of("checksum_errors", "CKERR", Number(Scaled));
        /// Writes of initialization that failed.
        InitializeErrors = of("initialize_errors", "INITIALIZE_ERRORS", Number(Scaled));
        /// Empty requests.
        NullOps = of("null_ops", "NULL_OPS", Number(Scaled));
        /// Reads.
        ReadOps = of("read_ops", "READ_OPS", Number(Scaled));
        /// Writes.
        WriteOps = of("write_ops", "WRITE_OPS", Number(Scaled));
        /// Blocks that became free.
        FreeOps = of("free_ops", "FREE_OPS", Number(Scaled));
        /// Blocks of logs that were claimed.
        ClaimOps = of("claim_ops", "CLAIM_OPS", Number(Scaled));
        /// Trims.
        TrimOps = of("trim_ops", "TRIM_OPS", Number(Scaled));
        /// Bytes of empty requests.
        NullBytes = of("null_bytes", "NULL_BYTES", Number(Scaled));
        /// Bytes read.
        ReadBytes = of("read_bytes", "READ_BYTES", Number(Scaled));
        /// Bytes written.
        WriteBytes = of("write_bytes", "WRITE_BYTES", Number(Scaled));
        /// Bytes that became free.
        FreeBytes = of("free_bytes", "FREE_BYTES", Number(Scaled));
        /// Bytes of logs that were claimed.
        ClaimBytes = of("claim_bytes", "CLAIM_BYTES", Number(Scaled));
        /// Bytes trimmed.
        TrimBytes = of("trim_bytes", "TRIM_BYTES", Number(Scaled));
        /// Whether it is being removed.
        Removing = of("removing", "REMOVING", Text);
        /// Whether new blocks go there.
        Allocating = of("allocating", "ALLOCATING", Text);
        /// Whether failed requests are not retried.
        Failfast = of("failfast", "FAILFAST", Text);
        /// How many checksum errors make it degraded,
        ChecksumN = of("checksum_n", "CHECKSUM_N", Text);
        /// within how many seconds.
        ChecksumT = of("checksum_t", "CHECKSUM_T", Text);
        /// How many I/O errors make it faulted,
        IoN = of("io_n", "IO_N", Text);
        /// within how many seconds.
        IoT = of("io_t", "IO_T", Text);
        /// How many slow requests make it degraded,
        SlowIoN = of("slow_io_n", "SLOW_IO_N", Text);
        /// within how many seconds.
        SlowIoT = of("slow_io_t", "SLOW_IO_T", Text);
        /// Whether it can be trimmed.
        TrimSupport = of("trim_support", "TRIM_SUPPORT", Text);
        /// Trims that failed.
        TrimErrors = of("trim_errors", "TRIM_ERRORS", Number(Scaled));
        /// Slow requests.
        SlowIos = of("slow_ios", "SLOW_IOS", Number(Scaled));
    }
}
