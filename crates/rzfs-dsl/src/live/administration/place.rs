//! Finding datasets by name in the state of the syncing txg.

use super::{TaskContext, TaskError};
use crate::dataset::DatasetName;
use crate::dataset::limits::MAX_DEPTH;
use crate::dataset::property::{DatasetProperty, Inheritance};
use crate::live::LiveError;
use crate::live::change_error::ChangeError;
use crate::live::datasets::values::in_force;
use crate::mos::{MosSource, names};
use rzfs_dmu::Objset;
use rzfs_format::dsl::{DslDataset, DslDir};
use rzfs_format::objset::ObjsetType;
use rzfs_format::{FormatError, ObjectId, ObjsetId};

/// Maximum number of `/` in a name, exclusive (`zfs_max_dataset_nesting`).
pub(super) const MAX_NESTING: usize = 50;

/// A head with its directory.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) dir: ObjectId,
    pub(super) head: ObjectId,
}

/// Refuses names that are hidden from administrators, such as receives in progress.
pub(super) fn check_not_hidden(name: &str) -> Result<(), ChangeError> {
    match name.contains('%') {
        true => Err(ChangeError::InvalidName { name: name.to_owned() }),
        false => Ok(()),
    }
}

/// Checks the name of a new dataset; returns its parent and its last component.
pub(super) fn check_new_name(name: &str) -> Result<(&str, &str), ChangeError> {
    let too_long = || ChangeError::NameTooLong { name: name.to_owned() };
    let invalid = || ChangeError::InvalidName { name: name.to_owned() };
    if name.len() > DatasetName::MAX_LEN {
        return Err(too_long());
    }
    let parsed = DatasetName::parse(name).ok_or_else(invalid)?;
    let components = parsed.directories();
    if parsed.snapshot().is_some() || name.contains('%') {
        return Err(invalid());
    }
    if components.count() > MAX_NESTING {
        return Err(ChangeError::TooDeep { name: name.to_owned() });
    }
    name.rsplit_once('/').ok_or_else(|| ChangeError::Exists { name: name.to_owned() })
}

impl TaskContext<'_> {
    /// The root directory.
    pub(super) fn root_dir(&self) -> Result<ObjectId, LiveError> {
        self.mos.required_object("root_dataset")
    }

    /// The current record of a directory.
    pub(super) fn dir(&mut self, id: ObjectId) -> Result<DslDir, LiveError> {
        self.state.dirs.get(&self.mos, id).cloned()
    }

    /// The current record of a head or snapshot.
    pub(super) fn dataset(&self, id: ObjectId) -> Result<DslDataset, LiveError> {
        self.mos.record(id)
    }

    /// The effective number of a property of one directory, not inherited.
    pub(super) fn own_number(
        &mut self,
        dir: ObjectId,
        property: DatasetProperty,
    ) -> Result<u64, LiveError> {
        let dirs = &mut self.state.dirs;
        let value = in_force(&self.mos, dirs, dir, property.name(), Inheritance::Own)?;
        Ok(value.and_then(|value| value.first_u64()).unwrap_or(0))
    }

    /// The directory `name` in another one.
    pub(super) fn child_dir(
        &mut self,
        parent: ObjectId,
        name: &str,
    ) -> Result<Option<ObjectId>, LiveError> {
        let children = self.dir(parent)?.children;
        let Some(child) = names::child(&self.mos, children, name)? else { return Ok(None) };
        if self.dir(child)?.parent == Some(parent) {
            return Ok(Some(child));
        }
        let problem = FormatError::invalid("DSL directory", "its parent is another directory");
        Err(LiveError::corrupt(child)(problem))
    }

    /// The name of a directory.
    pub(super) fn name_of(&mut self, dir: ObjectId) -> Result<String, LiveError> {
        let mut components = Vec::new();
        let mut level = dir;
        while let Some(parent) = self.dir(level)?.parent {
            if components.len() == MAX_DEPTH {
                let problem = FormatError::invalid("DSL directory", "its parents are a loop");
                return Err(LiveError::corrupt(dir)(problem));
            }
            let children = self.children(parent)?;
            let name = children.into_iter().find(|(_, child)| *child == level);
            let missing = || FormatError::invalid("DSL directory", "its parent does not know it");
            components.push(name.ok_or_else(missing).map_err(LiveError::corrupt(level))?.0);
            level = parent;
        }
        components.push(self.pool.name.clone());
        components.reverse();
        Ok(components.join("/"))
    }

    /// The head with this name, if there is one.
    pub(super) fn find(&mut self, name: &str) -> Result<Option<Place>, LiveError> {
        let Some(parsed) = DatasetName::parse(name).filter(|name| name.snapshot().is_none()) else {
            return Ok(None);
        };
        let mut components = parsed.directories();
        if components.next() != Some(self.pool.name.as_str()) {
            return Ok(None);
        }
        let mut dir = self.root_dir()?;
        for component in components {
            let Some(child) = self.child_dir(dir, component)? else { return Ok(None) };
            dir = child;
        }
        let record = self.dir(dir)?;
        let head = names::head(&self.mos, (dir, &record))?;
        Ok(head.map(|(head, _)| Place { name: name.to_owned(), dir, head }))
    }

    /// The head with this name.
    pub(super) fn head(&mut self, name: &str) -> Result<Place, TaskError> {
        let not_found = || ChangeError::NotFound { name: name.to_owned() };
        Ok(self.find(name)?.ok_or_else(not_found)?)
    }

    /// The file system in which `name` is to be created; for a receive also the target volume,
    /// below which it is kept meanwhile.
    pub(super) fn parent_of_new(&mut self, name: &str, parent: &str) -> Result<Place, TaskError> {
        let no_parent = || ChangeError::NoParent { name: name.to_owned() };
        let parent = self.find(parent)?.ok_or_else(no_parent)?;
        let is_temporary = name.rsplit('/').next().is_some_and(|last| last.starts_with('%'));
        if is_temporary || self.objset_type(parent.head)? == ObjsetType::Zfs {
            Ok(parent)
        } else {
            Err(ChangeError::WrongParent { name: name.to_owned() }.into())
        }
    }

    /// The type of a head's objset.
    pub(super) fn objset_type(&self, head: ObjectId) -> Result<ObjsetType, LiveError> {
        let open = self.pool.heads.get(head);
        if let Some(open) = open {
            return Ok(open.objset().synced().objset_type());
        }
        let root = self.dataset(head)?.root;
        let pipeline = self.mos.objset().pipeline();
        let objset = Objset::open(pipeline, ObjsetId(head.get()), &root, None)?;
        Ok(objset.objset_type())
    }

    /// The names and directories of the children, including hidden ones.
    pub(super) fn children(&mut self, dir: ObjectId) -> Result<Vec<(String, ObjectId)>, LiveError> {
        let children = self.dir(dir)?.children;
        names::all(&self.mos, children)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_names_have_a_parent_and_no_strange_parts() {
        assert_eq!(check_new_name("tank/a/b").unwrap(), ("tank/a", "b"));
        let errno = |name: &str| check_new_name(name).unwrap_err().errno();
        for name in ["tank/", "tank/a@b", "tank/%recv", "tank/..", "tank/$x", "tank/a//b"] {
            assert_eq!(errno(name), 22, "{name}");
        }
        assert_eq!(errno("tank"), 17);
        assert_eq!(errno(&format!("tank/{}", "x".repeat(251))), 36);
        assert!(check_new_name(&format!("tank/{}", "x".repeat(250))).is_ok());
        assert!(check_new_name(&format!("tank{}", "/x".repeat(49))).is_ok());
        assert_eq!(errno(&format!("tank{}", "/x".repeat(50))), 36);
    }
}
