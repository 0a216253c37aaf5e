//! `zdb -C`: the configuration of a pool, from the cache file and the MOS.

use super::error::ZdbError;
use super::session::{Session, Verdict};
use super::source;
use rzfs_dsl::pool::Pool;
use rzfs_format::ObjectId;
use rzfs_format::nvlist::{NvList, NvValue};
use rzfs_format::object_type::ObjectType;

/// Columns by which a configuration is indented.
const INDENT: usize = 8;

/// Maximum size of a configuration; real ones have kilobytes.
const MAX_SIZE: u64 = 64 << 20;

/// Shows the configuration in the MOS, after that of the cache file if the pool was found there.
pub(crate) fn run(session: &mut Session<'_>, pool: &Pool) -> Result<(), ZdbError> {
    if session.arguments.exported == 0
        && let Ok(cache) = source::read_cache_file(source::cache_file(session.arguments))
        && let Ok(cached) = cache.list(pool.name())
    {
        writeln!(session.out, "\nCached configuration:")?;
        write!(session.out, "{}", cached.indented(INDENT))?;
    }
    writeln!(session.out, "\nMOS Configuration:")?;
    if let Some(id) = pool.directory().object("config")? {
        write!(session.out, "{}", stored(pool, id)?.indented(INDENT))?;
    }
    Ok(())
}

/// Shows all configurations of the cache file.
pub(crate) fn run_cache_file(session: &mut Session<'_>) -> Result<Verdict, ZdbError> {
    let cache = source::read_cache_file(source::cache_file(session.arguments))?;
    for pair in cache.iter() {
        writeln!(session.out, "{}:", pair.name().to_text())?;
        if let NvValue::List(config) = pair.value() {
            write!(session.out, "{}", config.indented(4))?;
        }
    }
    Ok(Verdict::Clean)
}

/// The list in a packed-list object of the MOS.
pub(crate) fn stored(pool: &Pool, id: ObjectId) -> Result<NvList, ZdbError> {
    let object = pool.mos().object(id)?;
    if object.object_type() != ObjectType::PACKED_NVLIST {
        return Err(object.wrong_type(ObjectType::PACKED_NVLIST.name()).into());
    }
    let size = object.bonus().first_chunk::<8>().map_or(0, |size| object.order().u64(*size));
    let size = size.min(object.dnode().extent()).min(MAX_SIZE);
    let bytes = object.read_bytes(0, usize::try_from(size).unwrap_or(0))?;
    NvList::decode(&bytes).map_err(ZdbError::corrupt(id))
}
