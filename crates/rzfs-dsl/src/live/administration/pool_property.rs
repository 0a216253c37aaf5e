//! Setting properties of the pool (spec 01, section 7.1).

use super::property_rules::is_user_property;
use super::{TaskContext, TaskError};
use crate::live::LiveError;
use crate::live::change_error::ChangeError;
use crate::live::space::limits::SpaceTier;
use crate::mos::history::Event;
use crate::mos::{MosSource, OBJECT_DIRECTORY as DIRECTORY, text};
use crate::pool::FailMode;
use rzfs_format::ObjectId;
use rzfs_format::object_type::ObjectType;
use rzfs_format::property::{PoolProperty, PoolStorage};
use rzfs_metaslab::allocator::Autotrim;
use rzfs_zap::ZapValue;

/// Maximum length of a comment in bytes.
const MAX_COMMENT: usize = 32;
/// Maximum length of a user property's value or a list of compatibility files, in bytes.
const MAX_VALUE: usize = 8191;
const MAX_NAME: usize = 255;

/// A settable pool property.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Settable {
    /// A user property; an empty text is not stored.
    User,
    /// A number.
    Number(PoolProperty),
    /// The number of a dataset, given by name.
    Dataset(PoolProperty),
    /// A text that is also in the labels.
    LabelText(PoolProperty),
}

impl Settable {
    fn of(property: &str) -> Result<Self, ChangeError> {
        let name = || property.to_owned();
        match PoolProperty::from_name(property) {
            Some(native) => match native.storage() {
                PoolStorage::Properties => Ok(Self::Number(native)),
                PoolStorage::Dataset => Ok(Self::Dataset(native)),
                PoolStorage::Labels => Ok(Self::LabelText(native)),
                PoolStorage::Elsewhere => Err(ChangeError::ReadOnlyProperty { property: name() }),
            },
            None if property.len() > MAX_NAME => {
                Err(ChangeError::PropertyNameTooLong { property: name() })
            }
            None if is_user_property(property) => Ok(Self::User),
            None => Err(ChangeError::UnknownProperty { property: name() }),
        }
    }
}

impl TaskContext<'_> {
    pub(crate) fn set_pool_property(
        &mut self,
        property: &str,
        value: &ZapValue,
    ) -> Result<(), TaskError> {
        let settable = Settable::of(property)?;
        self.require_space(SpaceTier::Reserved)?;
        self.check(|this| {
            let zap = this.mos.object_of(DIRECTORY, "pool_props")?;
            Ok(zap.map_or(Ok(()), |zap| this.mos.check_zap(zap))?)
        })?;
        let shown = match settable {
            Settable::User => {
                let text = property_text(property, value, MAX_VALUE)?;
                self.store_pool_property(property, given(&text).map(ZapValue::from))?;
                text
            }
            Settable::Number(native) => self.set_pool_number(native, value)?,
            Settable::Dataset(native) => {
                let name = text(value.as_bytes().unwrap_or_default());
                let head = match name.is_empty() {
                    true => ObjectId(0),
                    false => self.check(|this| this.head(&name))?.head,
                };
                self.store_pool_property(native.name(), Some(head.get().into()))?;
                head.to_string()
            }
            Settable::LabelText(native) => self.set_label_text(native, value)?,
        };
        let (operation, text) = ("set", format!("{property}={shown}"));
        Ok(self.log(&Event::Internal { operation, text, dataset: None })?)
    }

    /// Sets a number and applies it to the pool; returns its form in the history.
    fn set_pool_number(
        &mut self,
        property: PoolProperty,
        value: &ZapValue,
    ) -> Result<String, TaskError> {
        let invalid =
            |problem| ChangeError::InvalidValue { property: property.to_string(), problem };
        let number = value.first_u64().ok_or_else(|| invalid("has no such value"))?;
        property.values().check(number).map_err(invalid)?;
        let is_multihost = property == PoolProperty::Multihost && number != 0;
        if is_multihost && self.pool.environment.host().id == 0 {
            return Err(invalid("requires a non-zero system hostid").into());
        }
        self.store_pool_property(property.name(), Some(number.into()))?;
        match property {
            PoolProperty::Multihost => self.pool.heart.follow(number != 0),
            PoolProperty::DedupTableQuota => {
                self.state.dedup.set_quota(Some(number).filter(|bytes| *bytes != u64::MAX));
            }
            PoolProperty::FailMode => {
                let mode = FailMode::from_number(number).unwrap_or_default();
                self.pool.suspension.set_fail_mode(mode);
            }
            PoolProperty::Autotrim => {
                let autotrim = if number == 0 { Autotrim::Off } else { Autotrim::On };
                self.pool.accounts.allocator().set_autotrim(autotrim);
            }
            _ => {}
        }
        // OpenZFS shows all numbers as signed.
        Ok(number.cast_signed().to_string())
    }

    /// Sets a text that is also in the labels.
    fn set_label_text(
        &mut self,
        property: PoolProperty,
        value: &ZapValue,
    ) -> Result<String, TaskError> {
        let is_comment = property == PoolProperty::Comment;
        let most = if is_comment { MAX_COMMENT } else { MAX_VALUE };
        let text = property_text(property.name(), value, most)?;
        let given = given(&text).map(str::to_owned);
        match is_comment {
            true => self.state.config.comment = given,
            false => self.state.config.compatibility = given.filter(|text| text != "off"),
        }
        self.state.is_config_dirty = true;
        self.vdevs.mark_all_configs_dirty();
        Ok(text)
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

fn property_text(property: &str, value: &ZapValue, most: usize) -> Result<String, ChangeError> {
    let property = || property.to_owned();
    let problem = "must be a string";
    let invalid = || ChangeError::InvalidValue { property: property(), problem };
    let text = text(value.as_bytes().ok_or_else(invalid)?);
    match text.len() > most {
        true => Err(ChangeError::ValueTooLong { property: property() }),
        false => Ok(text),
    }
}

/// `None` for an empty text.
fn given(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_pools_store_can_be_set() {
        let failmode = Settable::Number(PoolProperty::FailMode);
        assert_eq!(Settable::of("failmode").unwrap(), failmode);
        assert_eq!(Settable::of("org.example:x").unwrap(), Settable::User);
        assert!(matches!(Settable::of("guid"), Err(ChangeError::ReadOnlyProperty { .. })));
        assert!(matches!(Settable::of("nonsense"), Err(ChangeError::UnknownProperty { .. })));
    }
}
