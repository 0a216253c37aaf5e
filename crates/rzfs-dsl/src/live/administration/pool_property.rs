//! Setting properties of the pool (spec 01, section 7.1).

use super::{TaskContext, TaskError};
use crate::live::LiveError;
use crate::live::change_error::ChangeError;
use crate::live::mos::history::Event;
use crate::live::space::limits::SpaceTier;
use crate::pool::{FailMode, OBJECT_DIRECTORY as DIRECTORY, text};
use rzfs_format::ObjectId;
use rzfs_format::object_type::ObjectType;
use rzfs_metaslab::allocator::Autotrim;
use rzfs_zap::ZapValue;

/// Most bytes of a comment.
const MAX_COMMENT: usize = 32;
/// Most bytes of the value of a user property, and of a list of compatibility files.
const MAX_VALUE: usize = 8191;
const MAX_NAME: usize = 255;

/// Where a property of a pool is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kept {
    /// In the ZAP of properties, as a number up to this one.
    Number(u64),
    /// There, as the number of a dataset.
    Dataset,
    /// There, as text; an empty one is not kept.
    UserText,
    /// In the labels.
    Comment,
    Compatibility,
}

impl Kept {
    fn of(property: &str) -> Result<Self, ChangeError> {
        let unknown = || ChangeError::UnknownProperty { property: property.to_owned() };
        Ok(match property {
            "ashift" => Self::Number(16),
            "delegation" | "autoreplace" | "listsnapshots" | "autoexpand" | "autotrim"
            | "multihost" => Self::Number(1),
            "failmode" => Self::Number(2),
            "dedup_table_quota" => Self::Number(u64::MAX),
            "bootfs" => Self::Dataset,
            "comment" => Self::Comment,
            "compatibility" => Self::Compatibility,
            "size" | "capacity" | "health" | "guid" | "load_guid" | "free" | "allocated"
            | "freeing" | "leaked" | "fragmentation" | "expandsize" | "checkpoint"
            | "dedupratio" | "readonly" | "version" => {
                return Err(ChangeError::ReadOnlyProperty { property: property.to_owned() });
            }
            _ if property.len() > MAX_NAME => {
                return Err(ChangeError::PropertyNameTooLong { property: property.to_owned() });
            }
            _ if property.contains(':') => Self::UserText,
            _ => return Err(unknown()),
        })
    }
}

impl TaskContext<'_> {
    pub(crate) fn set_pool_property(
        &mut self,
        property: &str,
        value: &ZapValue,
    ) -> Result<(), TaskError> {
        let kept = Kept::of(property)?;
        self.require_space(SpaceTier::Reserved)?;
        self.check(|this| {
            let zap = this.mos.object_of(DIRECTORY, "pool_props")?;
            Ok(zap.map_or(Ok(()), |zap| this.mos.check_zap(zap))?)
        })?;
        let invalid =
            |problem| ChangeError::InvalidValue { property: property.to_owned(), problem };
        let shown = match kept {
            Kept::Number(most) => {
                let number = value.first_u64().filter(|number| *number <= most);
                let number = number.ok_or_else(|| invalid("has no such value"))?;
                if property == "ashift" && (1..9).contains(&number) {
                    return Err(invalid("must be 0 or from 9 to 16").into());
                }
                self.store_pool_property(property, Some(number.into()))?;
                if property == "multihost" {
                    if number != 0 && self.pool.environment.host().id == 0 {
                        return Err(invalid("requires a non-zero system hostid").into());
                    }
                    self.pool.heart.follow(number != 0);
                }
                if property == "dedup_table_quota" {
                    self.state.dedup.set_quota(Some(number).filter(|bytes| *bytes != u64::MAX));
                }
                if property == "failmode" {
                    let mode = FailMode::from_number(number).unwrap_or_default();
                    self.pool.suspension.set_fail_mode(mode);
                }
                if property == "autotrim" {
                    let autotrim = if number == 0 { Autotrim::Off } else { Autotrim::On };
                    self.pool.accounts.allocator().set_autotrim(autotrim);
                }
                // OpenZFS shows all numbers as signed ones.
                number.cast_signed().to_string()
            }
            Kept::Dataset => {
                let name = text(value.as_bytes().unwrap_or_default());
                let head = match name.is_empty() {
                    true => ObjectId(0),
                    false => self.check(|this| this.head(&name))?.head,
                };
                self.store_pool_property(property, Some(head.get().into()))?;
                head.to_string()
            }
            Kept::UserText | Kept::Comment | Kept::Compatibility => {
                let text = text(value.as_bytes().ok_or_else(|| invalid("must be a string"))?);
                let most = if kept == Kept::Comment { MAX_COMMENT } else { MAX_VALUE };
                if text.len() > most {
                    return Err(ChangeError::ValueTooLong { property: property.to_owned() }.into());
                }
                self.store_pool_text(kept, property, &text)?;
                text
            }
        };
        let (operation, text) = ("set", format!("{property}={shown}"));
        Ok(self.log(&Event::Internal { operation, text, dataset: None })?)
    }

    fn store_pool_text(&mut self, kept: Kept, name: &str, text: &str) -> Result<(), LiveError> {
        let given = (!text.is_empty()).then(|| text.to_owned());
        match kept {
            Kept::Comment => self.state.config.comment = given,
            Kept::Compatibility => {
                self.state.config.compatibility = given.filter(|text| text != "off");
            }
            _ => return self.store_pool_property(name, given.as_deref().map(ZapValue::from)),
        }
        self.state.is_config_dirty = true;
        self.vdevs.mark_all_configs_dirty();
        Ok(())
    }

    fn store_pool_property(
        &mut self,
        name: &str,
        value: Option<ZapValue>,
    ) -> Result<(), LiveError> {
        let mos = self.mos;
        let zap = match mos.object_of(DIRECTORY, "pool_props")? {
            Some(zap) => zap,
            None => {
                let zap = mos.create_zap(ObjectType::POOL_PROPS)?;
                mos.insert(DIRECTORY, "pool_props", zap.get())?;
                zap
            }
        };
        match value {
            Some(value) => mos.set(zap, name, value),
            None => mos.remove(zap, name).map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_have_their_places() {
        assert_eq!(Kept::of("failmode").unwrap(), Kept::Number(2));
        assert_eq!(Kept::of("org.example:x").unwrap(), Kept::UserText);
        assert!(matches!(Kept::of("guid"), Err(ChangeError::ReadOnlyProperty { .. })));
        assert!(matches!(Kept::of("nonsense"), Err(ChangeError::UnknownProperty { .. })));
    }
}
