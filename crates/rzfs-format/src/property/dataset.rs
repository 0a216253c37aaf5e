//! The properties of datasets (spec 04, section 14).

mod entry;
mod words;

pub use entry::{DatasetKind, Datasets, Inheritance, Storage};

use super::description::{DefaultValue, Editing, at_creation, read_only, settable};
use super::table::properties;
use super::values::NumberFormat::{
    Bytes, BytesOrNone, CountOrNone, Plain, Ratio, Scaled, TimeToTheMinute, TimeToTheSecond,
    Version,
};
use super::values::Values::{BlockSize, BlockSizeOrZero, Compression, Number, Text};
use super::values::{alias, word, words};
use crate::compression::CompressionFunction;
use crate::features::Feature;
use entry::{ALL, ALL_AND_BOOKMARKS, Entry, FILE_SYSTEMS, HEADS, SNAPSHOTS, VOLUMES, WITH_FILES};
use words::{CACHED, CHECKSUMS, DEDUP_CHECKSUMS, DNODE_SIZES, ENCRYPTIONS, ON_OFF};

properties! {
    /// A property of datasets, in the order of `zfs get all`.
    DatasetProperty: Entry {
        /// What the dataset is.
        Type = read_only("type", "TYPE", Text)
            .help("filesystem | volume | snapshot | bookmark").own(ALL_AND_BOOKMARKS);
        /// When it was created.
        Creation = read_only("creation", "CREATION", Number(TimeToTheMinute))
            .own(ALL_AND_BOOKMARKS);
        /// Space that it and everything below it uses.
        Used = read_only("used", "USED", Number(Bytes)).own(ALL);
        /// Space that can still be written.
        Available = read_only("available", "AVAIL", Number(Bytes)).own(HEADS);
        /// Space of all blocks that it refers to, shared ones included.
        Referenced = read_only("referenced", "REFER", Number(Bytes)).own(ALL_AND_BOOKMARKS);
        /// Compression of it and everything below it.
        CompressRatio = read_only("compressratio", "RATIO", Number(Ratio)).own(ALL);
        /// Whether it is mounted, which is not known to the pool.
        Mounted = read_only("mounted", "MOUNTED", words![word(1, "yes"), word(0, "no")])
            .own(FILE_SYSTEMS);
        /// The snapshot of which it is a clone.
        Origin = read_only("origin", "ORIGIN", Text).help("<snapshot>").own(HEADS);
        /// The most that it and everything below it may use.
        Quota = settable("quota", "QUOTA", Number(BytesOrNone)).default(0).own(FILE_SYSTEMS);
        /// Space that is set aside for it and everything below it.
        Reservation = settable("reservation", "RESERV", Number(BytesOrNone)).default(0).own(HEADS);
        /// The size of a volume.
        VolSize = settable("volsize", "VOLSIZE", Number(Scaled)).default(0)
            .own(VOLUMES.and(SNAPSHOTS)).stored(Storage::Volume("size"));
        /// The size of a volume's blocks.
        VolBlockSize = at_creation("volblocksize", "VOLBLOCK", BlockSize).default(16_384)
            .help("512 to 128k, power of 2")
            .inherited_once(VOLUMES).stored(Storage::VolumeBlockSize);
        /// The largest block that files are written in.
        RecordSize = settable("recordsize", "RECSIZE", BlockSize).default(131_072)
            .inherited(FILE_SYSTEMS);
        /// Where it is mounted.
        MountPoint = settable("mountpoint", "MOUNTPOINT", Text).default_word("/")
            .help("<path> | legacy | none").inherited(FILE_SYSTEMS);
        /// How NFS shares it.
        ShareNfs = settable("sharenfs", "SHARENFS", Text).default_word("off")
            .help("on | off | NFS share options").inherited(FILE_SYSTEMS);
        /// The checksum of data.
        Checksum = settable("checksum", "CHECKSUM", CHECKSUMS).default_word("on").inherited(HEADS);
        /// How data is compressed.
        Compression = settable("compression", "COMPRESS", Compression)
            .default(CompressionFunction::On.number() as u64).inherited(HEADS);
        /// Whether reading a file changes its access time.
        Atime = settable("atime", "ATIME", ON_OFF).default_word("on").inherited(FILE_SYSTEMS);
        /// Whether device files can be opened.
        Devices = settable("devices", "DEVICES", ON_OFF).default_word("on").inherited(WITH_FILES);
        /// Whether programs can be executed.
        Exec = settable("exec", "EXEC", ON_OFF).default_word("on").inherited(WITH_FILES);
        /// Whether set-id bits are honoured.
        SetUid = settable("setuid", "SETUID", ON_OFF).default_word("on").inherited(WITH_FILES);
        /// Whether changes are refused.
        ReadOnly = settable("readonly", "RDONLY", ON_OFF).default_word("off").inherited(HEADS);
        /// Whether a zone manages it.
        Zoned = settable("zoned", "ZONED", ON_OFF).default_word("off").inherited(FILE_SYSTEMS);
        /// Whether its root has a `.zfs`, and whether that is listed.
        SnapDir = settable("snapdir", "SNAPDIR", words![
            word(2, "disabled").substituted_by(0),
            word(0, "hidden"),
            word(1, "visible"),
        ]).default_word("hidden").inherited(FILE_SYSTEMS);
        /// What `chmod` does to an ACL.
        AclMode = settable("aclmode", "ACLMODE", words![
            word(0, "discard"), word(2, "groupmask"), word(3, "passthrough"), word(4, "restricted"),
        ]).default_word("discard").inherited(FILE_SYSTEMS);
        /// What a new file inherits of its directory's ACL.
        AclInherit = settable("aclinherit", "ACLINHERIT", words![
            word(0, "discard"),
            word(1, "noallow"),
            word(4, "restricted"),
            word(3, "passthrough"),
            word(5, "passthrough-x"),
        ]).default_word("restricted").inherited(FILE_SYSTEMS);
        /// The txg in which it was created.
        CreateTxg = read_only("createtxg", "CREATETXG", Number(Plain)).own(ALL_AND_BOOKMARKS);
        /// Its full name, which `zfs get all` leaves out.
        Name = read_only("name", "NAME", Text).own(ALL_AND_BOOKMARKS);
        /// Whether `zfs mount -a` mounts it.
        CanMount = settable("canmount", "CANMOUNT", words![
            word(1, "on"), word(0, "off"), word(2, "noauto"),
        ]).default_word("on").own(FILE_SYSTEMS);
        /// Whether files have extended attributes, and where new ones go.
        Xattr = settable("xattr", "XATTR", words![
            word(2, "on"), word(0, "off"), word(1, "dir"), word(2, "sa"),
        ]).default_word("on").inherited(WITH_FILES);
        /// How many copies of data are kept.
        Copies = settable("copies", "COPIES", words![word(1, "1"), word(2, "2"), word(3, "3")])
            .default_word("1").inherited(HEADS);
        /// The version of the file system.
        Version = settable("version", "VERSION", Number(Version)).default(0)
            .help("1 | 2 | 3 | 4 | 5 | current")
            .own(WITH_FILES).stored(Storage::MasterNode("VERSION"));
        /// Whether names that are not UTF-8 are refused.
        Utf8Only = at_creation("utf8only", "UTF8ONLY", ON_OFF).default_word("off")
            .inherited_once(WITH_FILES).stored(Storage::MasterNode("utf8only"));
        /// How names are normalised before they are compared.
        Normalization = at_creation("normalization", "NORMALIZATION", words![
            word(0, "none"),
            word(0x50, "formC"),
            word(0x10, "formD"),
            word(0x60, "formKC"),
            word(0x20, "formKD"),
        ]).default_word("none")
            .inherited_once(WITH_FILES).stored(Storage::MasterNode("normalization"));
        /// Whether names that differ only in case are the same.
        CaseSensitivity = at_creation("casesensitivity", "CASE", words![
            word(0, "sensitive"), word(1, "insensitive"), word(2, "mixed"),
        ]).default_word("sensitive")
            .inherited_once(WITH_FILES).stored(Storage::MasterNode("casesensitivity"));
        /// Whether files are scanned for viruses.
        Vscan = settable("vscan", "VSCAN", ON_OFF).default_word("off").inherited(FILE_SYSTEMS);
        /// Whether locks that clients take are mandatory.
        NbMand = settable("nbmand", "NBMAND", ON_OFF).default_word("off").inherited(WITH_FILES);
        /// How SMB shares it.
        ShareSmb = settable("sharesmb", "SHARESMB", Text).default_word("off")
            .help("on | off | SMB share options").inherited(FILE_SYSTEMS);
        /// The most that it may refer to, snapshots and descendants aside.
        RefQuota = settable("refquota", "REFQUOTA", Number(BytesOrNone)).default(0)
            .own(FILE_SYSTEMS);
        /// Space that is set aside for it, snapshots and descendants aside.
        RefReservation = settable("refreservation", "REFRESERV", Number(BytesOrNone)).default(0)
            .own(HEADS);
        /// A number that no other dataset has.
        Guid = read_only("guid", "GUID", Number(Plain)).own(ALL_AND_BOOKMARKS);
        /// What the cache in memory keeps of it.
        PrimaryCache = settable("primarycache", "PRIMARYCACHE", CACHED).default_word("all")
            .inherited(ALL);
        /// What cache devices keep of it.
        SecondaryCache = settable("secondarycache", "SECONDARYCACHE", CACHED).default_word("all")
            .inherited(ALL);
        /// Space that destroying its snapshots would free.
        UsedBySnapshots = read_only("usedbysnapshots", "USEDSNAP", Number(Bytes)).own(HEADS);
        /// Space that destroying it would free, once its snapshots are gone.
        UsedByDataset = read_only("usedbydataset", "USEDDS", Number(Bytes)).own(HEADS);
        /// Space that destroying its children would free.
        UsedByChildren = read_only("usedbychildren", "USEDCHILD", Number(Bytes)).own(HEADS);
        /// Space that its `refreservation` sets aside.
        UsedByRefReservation = read_only("usedbyrefreservation", "USEDREFRESERV", Number(Bytes))
            .own(HEADS);
        /// Whether the snapshot is destroyed with its last hold or clone.
        DeferDestroy = read_only("defer_destroy", "DEFER_DESTROY", ON_OFF).help("yes | no")
            .own(SNAPSHOTS);
        /// How many holds the snapshot has.
        UserRefs = read_only("userrefs", "USERREFS", Number(Plain)).help("<count>").own(SNAPSHOTS);
        /// Whether synchronous writes are made for latency or throughput.
        LogBias = settable("logbias", "LOGBIAS", words![
            word(0, "latency"), word(1, "throughput"),
        ]).default_word("latency").inherited(HEADS);
        /// The number of its object.
        ObjsetId = read_only("objsetid", "OBJSETID", Number(Plain)).own(ALL);
        /// Whether blocks with the same contents are stored once.
        Dedup = settable("dedup", "DEDUP", DEDUP_CHECKSUMS).default_word("off")
            .help("on | off | verify | sha256[,verify] | sha512[,verify] | skein[,verify] | \
                   edonr,verify | blake3[,verify]")
            .inherited(HEADS);
        /// The sensitivity label of multi-level security.
        MlsLabel = settable("mlslabel", "MLSLABEL", Text).default_word("none")
            .help("<sensitivity label>").inherited(ALL);
        /// Which writes are synchronous.
        Sync = settable("sync", "SYNC", words![
            word(0, "standard"), word(1, "always"), word(2, "disabled"),
        ]).default_word("standard").inherited(HEADS);
        /// The size of dnodes of new files.
        DnodeSize = settable("dnodesize", "DNSIZE", DNODE_SIZES).default_word("legacy")
            .inherited(FILE_SYSTEMS);
        /// Compression of what it refers to.
        RefCompressRatio = read_only("refcompressratio", "REFRATIO", Number(Ratio)).own(ALL);
        /// Space that was written since the previous snapshot.
        Written = read_only("written", "WRITTEN", Number(Scaled)).own(ALL);
        /// The clones of the snapshot.
        Clones = read_only("clones", "CLONES", Text).help("<dataset>[,...]").own(SNAPSHOTS);
        /// What it and everything below it would use without compression.
        LogicalUsed = read_only("logicalused", "LUSED", Number(Scaled)).own(HEADS);
        /// What it refers to before compression.
        LogicalReferenced = read_only("logicalreferenced", "LREFER", Number(Scaled))
            .own(ALL_AND_BOOKMARKS);
        /// How a volume appears in the system.
        VolMode = settable("volmode", "VOLMODE", words![
            word(0, "default"), word(1, "full"), word(1, "geom"), word(2, "dev"), word(3, "none"),
        ]).default_word("default").inherited(HEADS);
        /// The most file systems and volumes below it.
        FilesystemLimit = settable("filesystem_limit", "FSLIMIT", Number(CountOrNone))
            .default(u64::MAX)
            .own(FILE_SYSTEMS).needs(Feature::FilesystemLimits);
        /// The most snapshots of it and everything below it.
        SnapshotLimit = settable("snapshot_limit", "SSLIMIT", Number(CountOrNone)).default(u64::MAX)
            .own(HEADS).needs(Feature::FilesystemLimits);
        /// How many file systems and volumes are below it.
        FilesystemCount = read_only("filesystem_count", "FSCOUNT", Number(CountOrNone))
            .help("<count>")
            .own(FILE_SYSTEMS).stored(Storage::Directory("com.joyent:filesystem_count"));
        /// How many snapshots of it and everything below it there are.
        SnapshotCount = read_only("snapshot_count", "SSCOUNT", Number(CountOrNone)).help("<count>")
            .own(HEADS).stored(Storage::Directory("com.joyent:snapshot_count"));
        /// Whether snapshots of a volume appear in the system.
        SnapDev = settable("snapdev", "SNAPDEV", words![word(0, "hidden"), word(1, "visible")])
            .default_word("hidden").inherited(HEADS);
        /// The kind of ACLs that files have.
        AclType = settable("acltype", "ACLTYPE", words![
            word(0, "off"),
            word(2, "nfsv4"),
            word(1, "posix"),
            alias(1, "posixacl"),
            alias(0, "noacl"),
        ]).default_word("off").inherited(WITH_FILES);
        /// The SELinux context of all files.
        Context = settable("context", "CONTEXT", Text).default_word("none")
            .help("<selinux context>").own(ALL);
        /// The SELinux context of the file system.
        FsContext = settable("fscontext", "FSCONTEXT", Text).default_word("none")
            .help("<selinux fscontext>").own(ALL);
        /// The SELinux context of files without one.
        DefContext = settable("defcontext", "DEFCONTEXT", Text).default_word("none")
            .help("<selinux defcontext>").own(ALL);
        /// The SELinux context of the root directory.
        RootContext = settable("rootcontext", "ROOTCONTEXT", Text).default_word("none")
            .help("<selinux rootcontext>").own(ALL);
        /// Whether access times are updated only daily and after changes.
        Relatime = settable("relatime", "RELATIME", ON_OFF).default_word("on")
            .inherited(FILE_SYSTEMS);
        /// Which metadata is kept in several copies.
        RedundantMetadata = settable("redundant_metadata", "REDUND_MD", words![
            word(0, "all"),
            word(1, "most"),
            word(2, "some").substituted_by(0),
            word(3, "none").substituted_by(0),
        ]).default_word("all").inherited(HEADS);
        /// Whether it can be mounted over a directory that is not empty.
        Overlay = settable("overlay", "OVERLAY", ON_OFF).default_word("on").inherited(FILE_SYSTEMS);
        /// Where an interrupted receive can go on.
        ReceiveResumeToken = read_only("receive_resume_token", "RESUMETOK", Text)
            .help("<string token>").own(HEADS);
        /// The cipher that it is encrypted with.
        Encryption = at_creation("encryption", "ENCRYPTION", ENCRYPTIONS).default_word("off")
            .inherited_once(ALL).stored(Storage::KeyObject("DSL_CRYPTO_SUITE"));
        /// Where the user's key is.
        KeyLocation = settable("keylocation", "KEYLOCATION", Text).default_word("none")
            .help("prompt | <file URI> | <https URL> | <http URL>").own(HEADS);
        /// The form in which users give the key.
        KeyFormat = at_creation("keyformat", "KEYFORMAT", words![
            word(0, "none"), word(1, "raw"), word(2, "hex"), word(3, "passphrase"),
        ]).default_word("none").own(HEADS).stored(Storage::KeyObject("keyformat"));
        /// How many iterations make a key of a passphrase.
        Pbkdf2Iters = at_creation("pbkdf2iters", "PBKDF2ITERS", Number(Plain)).default(0)
            .help("<iters>").own(HEADS).stored(Storage::KeyObject("pbkdf2iters"));
        /// The dataset whose key unlocks this one.
        EncryptionRoot = read_only("encryptionroot", "ENCROOT", Text)
            .help("<filesystem | volume>").own(ALL);
        /// Whether its key is loaded.
        KeyStatus = read_only("keystatus", "KEYSTATUS", words![
            word(0, "none"), word(1, "unavailable"), word(2, "available"),
        ]).own(ALL);
        /// The largest file blocks that go to special vdevs.
        SpecialSmallBlocks =
            settable("special_small_blocks", "SPECIAL_SMALL_BLOCKS", BlockSizeOrZero)
            .default(0).inherited(FILE_SYSTEMS);
        /// The snapshots that a redacted dataset leaves out.
        RedactSnaps = read_only("redact_snaps", "RSNAPS", Text).help("<snapshot>[,...]")
            .own(ALL_AND_BOOKMARKS);
        /// When a snapshot was last taken or destroyed.
        SnapshotsChanged =
            read_only("snapshots_changed", "SNAPSHOTS_CHANGED", Number(TimeToTheSecond))
            .own(HEADS).stored(Storage::Directory("com.ixsystems:snapshots_changed"));
        /// What is read ahead.
        Prefetch = settable("prefetch", "PREFETCH", words![
            word(0, "none"), word(1, "metadata"), word(2, "all"),
        ]).default_word("all").inherited(ALL);
        /// Whether a volume serves requests on threads of its own.
        VolThreading = settable("volthreading", "VOLTHREADING", ON_OFF).default_word("on")
            .own(VOLUMES);
        /// Whether reads and writes can bypass the cache.
        Direct = settable("direct", "DIRECT", words![
            word(0, "disabled"), word(1, "standard"), word(2, "always"),
        ]).default_word("standard").inherited(FILE_SYSTEMS);
        /// Whether names can have more than 255 bytes.
        LongName = settable("longname", "LONGNAME", words![
            word(1, "on").needs(Feature::LongName), word(0, "off"),
        ]).default_word("off").inherited(FILE_SYSTEMS);
    }
}

impl DatasetProperty {
    /// Which datasets have it.
    #[must_use]
    pub const fn datasets(self) -> Datasets {
        self.entry().datasets
    }

    /// Where datasets have a value from that they do not have themselves.
    #[must_use]
    pub const fn inheritance(self) -> Inheritance {
        self.entry().inheritance
    }

    /// Where its value is.
    #[must_use]
    pub const fn storage(self) -> Storage {
        self.entry().storage
    }

    /// The name of its value where that is.
    #[must_use]
    pub const fn stored_name(self) -> &'static str {
        match self.storage() {
            Storage::MasterNode(name)
            | Storage::Volume(name)
            | Storage::KeyObject(name)
            | Storage::Directory(name) => name,
            Storage::Properties | Storage::VolumeBlockSize | Storage::Computed => self.name(),
        }
    }

    /// Whether users can set it, at creation or later.
    #[must_use]
    pub const fn is_settable(self) -> bool {
        !matches!(self.description().editing, Editing::Never)
    }

    /// The default value; `None` if it is not settable.
    #[must_use]
    pub const fn default(self) -> Option<DefaultValue> {
        self.description().default
    }

    /// The default number; `None` for texts, and if it is not settable.
    #[must_use]
    pub const fn default_number(self) -> Option<u64> {
        self.description().default_number()
    }

    /// The feature that must be enabled before it can have this number.
    #[must_use]
    pub fn feature(self, number: u64) -> Option<Feature> {
        self.entry().feature.or_else(|| self.values().feature(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_set_has_a_default() {
        for property in DatasetProperty::ALL {
            assert_eq!(property.is_settable(), property.default().is_some(), "{property}");
            let is_text = matches!(property.default(), Some(DefaultValue::Text(_)));
            assert_eq!(
                property.is_settable() && property.values().is_text(),
                is_text,
                "{property}"
            );
        }
    }

    #[test]
    fn features_follow_from_values() {
        let record_size = |number| DatasetProperty::RecordSize.feature(number);
        assert_eq!([131_072, 1 << 20].map(record_size), [None, Some(Feature::LargeBlocks)]);
        let checksum = |number| DatasetProperty::Checksum.feature(number);
        assert_eq!([1, 14].map(checksum), [None, Some(Feature::Blake3)]);
        let compression = |number| DatasetProperty::Compression.feature(number);
        let (lz4, zstd) = (Some(Feature::Lz4Compress), Some(Feature::ZstdCompress));
        assert_eq!([1, 15, 16 | 3 << 7].map(compression), [None, lz4, zstd]);
        let limits = Some(Feature::FilesystemLimits);
        assert_eq!(DatasetProperty::SnapshotLimit.feature(u64::MAX), limits);
        assert_eq!(DatasetProperty::DnodeSize.feature(0), None);
        assert_eq!(DatasetProperty::DnodeSize.feature(1), Some(Feature::LargeDnode));
    }

    #[test]
    fn properties_apply_to_kinds_of_datasets() {
        let has = |property: DatasetProperty, kind| property.datasets().include(kind);
        assert!(has(DatasetProperty::Exec, DatasetKind::Snapshot));
        assert!(!has(DatasetProperty::Compression, DatasetKind::Snapshot));
        assert!(!has(DatasetProperty::RecordSize, DatasetKind::Volume));
        let of_bookmarks =
            DatasetProperty::ALL.iter().filter(|it| it.datasets().include_bookmarks());
        assert_eq!(of_bookmarks.count(), 8);
    }
}
