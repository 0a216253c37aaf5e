//! Destinations of streams (spec 08, section 9.1).

use super::wording::{cannot, refusal_of_name};
use crate::protocol::{ReceiveRequest, ReceiveTarget, Refusal};
use rzfs_stream::Package;
use std::collections::BTreeMap;

/// Maps names of the sender to local names.
#[derive(Debug)]
pub(super) struct Places {
    target: ReceiveTarget,
    /// The root of the sent tree; `None`: each stream stands alone.
    top: Option<String>,
    /// The destination of each member of a package.
    members: BTreeMap<String, String>,
}

impl Places {
    pub(super) fn new(
        request: &ReceiveRequest,
        top: Option<&str>,
        package: Option<&Package>,
    ) -> Self {
        let (target, top) = (request.target.clone(), top.map(str::to_owned));
        let mut places = Self { target, top, members: BTreeMap::new() };
        let names = package.into_iter().flat_map(|package| &package.datasets);
        let members = names.filter_map(|one| Some((places.of(&one.name).ok()?, one.name.clone())));
        places.members = members.collect();
        places
    }

    /// Whether a local name belongs to a member sent under another name.
    pub(super) fn is_of_another(&self, name: &str, sent: &str) -> bool {
        self.members.get(name).is_some_and(|member| member != sent)
    }

    /// The destination of a sent file system or volume.
    pub(super) fn of(&self, sent: &str) -> Result<String, Refusal> {
        let top = self.top.as_deref().unwrap_or(sent);
        let rest = sent.strip_prefix(top).ok_or_else(|| refusal_of_name(sent))?;
        if !rest.is_empty() && !rest.starts_with('/') {
            return Err(refusal_of_name(sent));
        }
        let last = || top.rsplit('/').next().unwrap_or_default();
        Ok(match &self.target {
            ReceiveTarget::Dataset(name) => format!("{name}{rest}"),
            ReceiveTarget::Snapshot(name) => match (name.split_once('@'), rest) {
                (Some((head, _)), "") => head.to_owned(),
                _ => return Err(cannot("cannot specify snapshot name for multi-snapshot stream")),
            },
            ReceiveTarget::Path(parent) => match sent.split_once('/') {
                Some((_, below)) => format!("{parent}/{below}"),
                None => parent.clone(),
            },
            ReceiveTarget::LastName(parent) => format!("{parent}/{}{rest}", last()),
        })
    }

    /// Whether it is the named root, and not below it.
    pub(super) fn is_top(&self, sent: &str) -> bool {
        self.top.as_deref().is_none_or(|top| top == sent)
    }

    /// The root of the sent tree.
    pub(super) fn top(&self) -> Option<&str> {
        self.top.as_deref()
    }

    /// The root of the subtree where a locally renamed dataset may be.
    pub(super) fn around(&self, sent: &str) -> Option<&str> {
        match &self.target {
            ReceiveTarget::Path(parent) | ReceiveTarget::LastName(parent) => Some(parent),
            ReceiveTarget::Dataset(name) if !self.is_top(sent) => Some(name),
            ReceiveTarget::Dataset(_) | ReceiveTarget::Snapshot(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(target: ReceiveTarget, top: Option<&str>, sent: &str) -> Option<String> {
        Places { target, top: top.map(str::to_owned), members: BTreeMap::new() }.of(sent).ok()
    }

    #[test]
    fn names_are_those_of_the_target_with_what_is_below_it() {
        let dataset = || ReceiveTarget::Dataset("b/x".to_owned());
        let path = || ReceiveTarget::Path("b/x".to_owned());
        let last = || ReceiveTarget::LastName("b/x".to_owned());
        let snapshot = || ReceiveTarget::Snapshot("b/x@s".to_owned());
        let top = Some("p/a/c");
        for (target, top, sent, expected) in [
            (dataset(), top, "p/a/c", Some("b/x")),
            (dataset(), top, "p/a/c/d", Some("b/x/d")),
            (dataset(), None, "p/a/c", Some("b/x")),
            (path(), top, "p/a/c/d", Some("b/x/a/c/d")),
            (path(), None, "p", Some("b/x")),
            (last(), top, "p/a/c", Some("b/x/c")),
            (last(), top, "p/a/c/d/e", Some("b/x/c/d/e")),
            (last(), None, "p/a/c", Some("b/x/c")),
            (snapshot(), None, "p/a/c", Some("b/x")),
            (snapshot(), top, "p/a/c/d", None),
            (dataset(), top, "p/a/cd", None),
            (dataset(), top, "p/a", None),
            (path(), top, "q/etc", None),
        ] {
            assert_eq!(place(target, top, sent).as_deref(), expected, "{sent}");
        }
    }
}
