//! The attributes of files in zdb's format.

use crate::error::ZdbError;
use crate::session::Session;
use crate::text::{Escape, escaped};
use rzfs_dmu::{Block, DmuError, Object, Objset};
use rzfs_dsl::pool::Pool;
use rzfs_format::dirent::{DirectoryEntry, FileKind};
use rzfs_format::endian::Fields;
use rzfs_format::object_type::ObjectType;
use rzfs_format::objset::ObjsetType;
use rzfs_format::sa::{Attribute, SaBuffer, Schema};
use rzfs_format::xattr::XattrList;
use rzfs_format::znode::{FileFlags, LegacyZnode, Timestamp, Znode};
use rzfs_format::{FormatError, ObjectId};
use rzfs_zpl::{FileSystem, FileSystemOptions};
use std::collections::HashMap;
use std::io;

/// Minimum verbosity for paths.
const PATHS: u8 = 5;
/// The offset of the device number in a legacy znode.
const LEGACY_DEVICE_OFFSET: usize = 112;
/// The object of a file system that names all others.
const MASTER_NODE: ObjectId = ObjectId(1);
/// Deeper nesting of directories than this is damage.
const MAX_DEPTH: usize = 4096;

/// Formats the files of one file system.
pub(super) struct FileView {
    file_system: Option<FileSystem>,
    /// Names by object, for the searched directories.
    names: HashMap<ObjectId, Names>,
    /// The number of names in all of them.
    name_count: usize,
    /// Files without a path.
    lost: u64,
}

/// The names of a directory by object.
type Names = HashMap<ObjectId, Vec<u8>>;

/// Maximum number of names kept to find the paths of further files.
const MAX_NAMES: usize = 1 << 20;

/// The contents of a file's bonus and spill block.
struct Parts {
    znode: Znode,
    link_target: Option<Vec<u8>>,
    xattrs: Option<Vec<u8>>,
    /// The device number in stored form.
    device: Option<u64>,
    /// The directory of its extended attributes.
    xattr_directory: Option<ObjectId>,
}

impl FileView {
    /// A view of an object set; an encrypted one needs a key.
    pub(super) fn new(pool: &Pool, objset: &Objset, is_encrypted: bool) -> Self {
        let readable = objset.objset_type() == ObjsetType::Zfs && !is_encrypted;
        let options =
            FileSystemOptions { pool_version: pool.version(), ..FileSystemOptions::default() };
        // A damaged file system is shown without the data that require its schema.
        let file_system =
            readable.then(|| FileSystem::open(objset.clone(), options).ok()).flatten();
        Self { file_system, names: HashMap::new(), name_count: 0, lost: 0 }
    }

    /// Prints the attributes of a file.
    pub(super) fn print(
        &mut self,
        session: &mut Session<'_>,
        object: &Object,
    ) -> Result<(), ZdbError> {
        let Some(file_system) = &self.file_system else { return Ok(()) };
        let parts = parts(file_system.schema(), object)?;
        if session.arguments.datasets >= PATHS && session.arguments.object_lookup == 0 {
            let path = self.path(object.id(), &parts);
            session.out.write_all(b"\tpath\t")?;
            session.out.write_all(&path)?;
            writeln!(session.out)?;
        }
        if let Some(target) = &parts.link_target {
            session.out.write_all(b"\ttarget\t")?;
            session.out.write_all(target)?;
            writeln!(session.out)?;
        }
        print_znode(session, &parts)?;
        if let Some(xattrs) = parts.xattrs.as_deref().filter(|bytes| !bytes.is_empty()) {
            let list = XattrList::decode(xattrs).map_err(|source| corrupt(object, source))?;
            print_xattrs(session, &list, xattrs.len())?;
        }
        Ok(())
    }

    /// The number of files not reachable in the directory tree.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    /// The path of a file below the root, or why it has none.
    fn path(&mut self, id: ObjectId, parts: &Parts) -> Vec<u8> {
        match self.find_path(id, parts) {
            Ok(Some(path)) => path,
            _ if self.is_being_deleted(id) => b"on delete queue".to_vec(),
            _ => {
                self.lost += 1;
                b"path not found, possibly leaked".to_vec()
            }
        }
    }

    /// Whether a file was unlinked while open.
    fn is_being_deleted(&self, id: ObjectId) -> bool {
        let queue = self.file_system.as_ref().and_then(|file_system| {
            let objset = file_system.objset();
            let master = objset.object(MASTER_NODE).ok()?;
            let queue = master.zap().ok()?.lookup_u64("DELETE_QUEUE").ok()??;
            objset.object(ObjectId(queue)).ok()
        });
        let entry =
            queue.and_then(|queue| queue.zap().ok()?.lookup_u64(format!("{:x}", id.0)).ok()?);
        entry.is_some()
    }

    /// Walks up to a directory that is its own parent; `None` if a parent lacks its child.
    fn find_path(&mut self, id: ObjectId, parts: &Parts) -> Result<Option<Vec<u8>>, ZdbError> {
        let mut components: Vec<Vec<u8>> = Vec::new();
        let mut child = id;
        let mut flags = parts.znode.flags;
        let mut kind = parts.znode.kind;
        let mut parent = parts.znode.parent;
        while child != parent {
            if components.len() >= MAX_DEPTH {
                return Ok(None);
            }
            if flags.contains(FileFlags::XATTR) && kind == FileKind::Directory {
                components.push(b"<xattrdir>".to_vec());
            } else {
                let Some(name) = self.name_of(parent, child)? else { return Ok(None) };
                components.push(name);
            }
            let Some(file_system) = &self.file_system else { return Ok(None) };
            let above = file_system.objset().object(parent)?;
            let above = self::parts(file_system.schema(), &above)?.znode;
            child = parent;
            (flags, kind, parent) = (above.flags, above.kind, above.parent);
        }
        if components.is_empty() {
            return Ok(Some(b"/".to_vec()));
        }
        components.push(Vec::new());
        components.reverse();
        Ok(Some(components.join(&b'/')))
    }

    /// The name of an object in a directory.
    fn name_of(
        &mut self,
        directory: ObjectId,
        child: ObjectId,
    ) -> Result<Option<Vec<u8>>, ZdbError> {
        if !self.names.contains_key(&directory) {
            let Some(file_system) = &self.file_system else { return Ok(None) };
            let names = names(&file_system.objset().object(directory)?)?;
            if self.name_count.saturating_add(names.len()) > MAX_NAMES {
                self.names.clear();
                self.name_count = 0;
            }
            self.name_count += names.len();
            self.names.insert(directory, names);
        }
        Ok(self.names.get(&directory).and_then(|names| names.get(&child).cloned()))
    }
}

/// The names in a directory; for an object with several names, the first.
fn names(directory: &Object) -> Result<Names, ZdbError> {
    let mut names = Names::new();
    if directory.object_type() != ObjectType::DIRECTORY_CONTENTS {
        return Ok(names);
    }
    for entry in directory.zap()?.entries() {
        let entry = entry.map_err(|source| directory.zap_error(source))?;
        let target = DirectoryEntry::decode(entry.value.first_u64().unwrap_or(0));
        names.entry(target.object).or_insert_with(|| entry.name().to_vec());
    }
    Ok(names)
}

fn corrupt(object: &Object, source: FormatError) -> DmuError {
    DmuError::Dnode { objset: object.objset().id(), object: object.id(), source }
}

/// Reads the contents of a file's bonus and spill block.
fn parts(schema: &Schema, object: &Object) -> Result<Parts, ZdbError> {
    let corrupt = |source| corrupt(object, source);
    if object.dnode().bonus_type == ObjectType::ZNODE {
        let legacy = LegacyZnode::decode(object.bonus(), object.order()).map_err(corrupt)?;
        // Every legacy znode has these fields, used or not; its link target is not shown.
        let znode = legacy.znode;
        let fields = Fields::new("znode", object.bonus(), object.order());
        let device = Some(fields.u64(LEGACY_DEVICE_OFFSET).map_err(corrupt)?);
        let xattr_directory = Some(znode.xattr.unwrap_or_default());
        return Ok(Parts { znode, link_target: None, xattrs: None, device, xattr_directory });
    }
    let spill: Option<Block> = object.spill()?;
    let bonus = schema.buffer(object.bonus()).map_err(corrupt)?;
    let spill = spill.as_ref().map(|block| schema.buffer(&block.data)).transpose();
    let spill: Option<SaBuffer<'_>> = spill.map_err(corrupt)?;
    let znode = Znode::from_sa(&bonus, spill.as_ref()).map_err(corrupt)?;
    let value = |attribute: Attribute| {
        bonus.get(attribute).or_else(|| spill.as_ref().and_then(|spill| spill.get(attribute)))
    };
    let number = |attribute: Attribute| value(attribute).and_then(|value| value.u64().ok());
    let bytes = |attribute: Attribute| value(attribute).map(|value| value.bytes.to_vec());
    Ok(Parts {
        link_target: bytes(Attribute::Symlink),
        xattrs: bytes(Attribute::Dxattr),
        device: number(Attribute::Rdev).filter(|_| is_device(&znode)),
        xattr_directory: number(Attribute::Xattr).map(ObjectId).and_then(ObjectId::non_zero),
        znode,
    })
}

fn is_device(znode: &Znode) -> bool {
    matches!(znode.kind, FileKind::BlockDevice | FileKind::CharDevice)
}

fn print_znode(session: &mut Session<'_>, parts: &Parts) -> io::Result<()> {
    let Parts { znode, device, xattr_directory, .. } = parts;
    let time = |time: Timestamp| session.calendar.ctime(time.seconds.max(0).cast_unsigned());
    let times = [
        ("atime", time(znode.atime)),
        ("mtime", time(znode.mtime)),
        ("ctime", time(znode.ctime)),
        ("crtime", time(znode.crtime)),
    ];
    let out = &mut *session.out;
    writeln!(out, "\tuid     {}", znode.uid.0)?;
    writeln!(out, "\tgid     {}", znode.gid.0)?;
    for (name, time) in times {
        writeln!(out, "\t{name}\t{time}")?;
    }
    writeln!(out, "\tgen\t{}", znode.generation)?;
    writeln!(out, "\tmode\t{:o}", znode.mode)?;
    writeln!(out, "\tsize\t{}", znode.size)?;
    writeln!(out, "\tparent\t{}", znode.parent)?;
    writeln!(out, "\tlinks\t{}", znode.links)?;
    writeln!(out, "\tpflags\t{:x}", znode.flags.0)?;
    if znode.flags.contains(FileFlags::PROJID) {
        writeln!(out, "\tprojid\t{}", znode.project)?;
    }
    if let Some(directory) = xattr_directory {
        writeln!(out, "\txattr\t{directory}")?;
    }
    if let Some(device) = device {
        writeln!(out, "\trdev\t0x{device:016x}")?;
    }
    Ok(())
}

/// Prints the extended attributes in a system attribute of `size` bytes.
fn print_xattrs(session: &mut Session<'_>, list: &XattrList, size: usize) -> io::Result<()> {
    let style = match session.arguments.parseable {
        0 => Escape::WhereNeeded,
        _ => Escape::Always,
    };
    let out = &mut *session.out;
    writeln!(out, "\tSA xattrs: {size} bytes, {} entries\n", list.iter().count())?;
    for (name, value) in list.iter() {
        out.write_all(b"\t\t")?;
        out.write_all(name)?;
        writeln!(out, " = {}", escaped(value, style))?;
    }
    Ok(())
}
