//! `zdb -d`: datasets and their objects.
//!
//! One `d` lists the datasets, two their objects, four show the contents of each object, and five
//! the locations of its blocks.

mod bonus;
mod bookmarks;
mod features;
mod lists;
mod log;
mod lookup;
mod object;
mod order;
mod outage;
mod range;
mod record;
mod tree;
mod words;
mod zap;
mod znode;

use super::error::ZdbError;
use super::session::{Session, Verdict};
use super::text::pointer::Full;
use features::Consumers;
use object::ObjectView;
use order::Place;
use range::ObjectRange;
use rzfs_blockdev::without_number;
use rzfs_dmu::{Object, Objset};
use rzfs_dsl::dataset::Dataset;
use rzfs_dsl::dataset::property::DatasetProperty;
use rzfs_dsl::pool::Pool;
use rzfs_format::features::Feature;
use rzfs_format::{ObjectId, ObjsetId, Txg};
use std::io;

/// Minimum verbosity for lists of block pointers.
const LISTS: u8 = 3;
/// Minimum verbosity for bookmarks.
const BOOKMARKS: u8 = 4;

/// Shows all datasets of a pool, and checks the features' counts of datasets that use them.
pub(crate) fn run(session: &mut Session<'_>, pool: &Pool) -> Result<Verdict, ZdbError> {
    let mut verdict = print_mos(session, pool)?;
    let verbosity = session.arguments.datasets;
    if verbosity >= LISTS {
        let frees = lists::print_frees(session, pool);
        verdict = verdict.max(noted(session, frees)?);
        outage::print(session, pool)?;
    }
    let mut consumers = Consumers::default();
    let (places, problems) = order::datasets(pool);
    for problem in problems {
        verdict = verdict.max(noted(session, Err(problem))?);
    }
    for place in places {
        let shown = print_dataset(session, pool, &place, &[]);
        verdict = verdict.max(shown.or_else(|error| noted(session, Err(error)))?);
        let counted = consumers.add(pool, &place);
        verdict = verdict.max(noted(session, counted)?);
    }
    if verbosity >= LISTS {
        let origin = print_origin(session, pool);
        verdict = verdict.max(noted(session, origin)?);
    }
    let counted = consumers.add_pool(pool);
    verdict = verdict.max(noted(session, counted)?);
    Ok(verdict.max(consumers.print(session, pool)?))
}

/// Converts damage to a note, after which the report continues.
fn noted(session: &mut Session<'_>, result: Result<(), ZdbError>) -> Result<Verdict, ZdbError> {
    match result {
        Ok(()) => Ok(Verdict::Clean),
        Err(error @ ZdbError::Output(_)) => Err(error),
        Err(error) => {
            writeln!(session.notes, "zdb: {error}")?;
            Ok(Verdict::Damaged)
        }
    }
}

/// Shows the lists of the dataset that is the origin of all clones without another one.
fn print_origin(session: &mut Session<'_>, pool: &Pool) -> Result<(), ZdbError> {
    for dataset in order::origin(pool)? {
        if let Some(list) = dataset.deadlist {
            lists::print_deadlist(session, pool, list)?;
        }
    }
    Ok(())
}

/// Shows one dataset, or those of its objects that are given on the command line.
pub(crate) fn run_one(
    session: &mut Session<'_>,
    pool: &Pool,
    name: &str,
    ranges: &[String],
) -> Result<Verdict, ZdbError> {
    let ranges = ranges.iter().map(|text| text.parse()).collect::<Result<Vec<_>, ZdbError>>()?;
    if name == pool.name() && !ranges.is_empty() && is_mos_asked(session) {
        return print_mos_objects(session, pool, &ranges);
    }
    let place = Place::of(&hold(session, pool, name)?);
    if name.contains('#') {
        let bookmark = name.rsplit('#').next();
        bookmarks::print(session, pool, &place, bookmark)?;
        return Ok(Verdict::Clean);
    }
    print_dataset(session, pool, &place, &ranges)
}

/// Opens the dataset given by name or, if there is none, by number; for a bookmark, its dataset.
fn hold(session: &mut Session<'_>, pool: &Pool, name: &str) -> Result<Dataset, ZdbError> {
    let datasets = pool.datasets();
    let number = numeric(name);
    let held = match (session.arguments.numeric_dataset, number) {
        (1.., Some(id)) => datasets.by_object(id),
        _ => {
            let own = name.split('#').next().unwrap_or_default().trim_end_matches('/');
            match (datasets.open(own), number) {
                (Err(_), Some(id)) => datasets.by_object(id),
                (held, _) => held,
            }
        }
    };
    match held {
        Ok(dataset) => Ok(dataset),
        Err(error) => {
            let reason = without_number(&io::Error::from_raw_os_error(error.errno()));
            writeln!(session.notes, "failed to hold dataset '{name}': {reason}")?;
            Err(ZdbError::Hold { name: name.to_owned(), reason })
        }
    }
}

/// Shows the object at a path in a dataset: with -v its contents, with -vv the locations of its
/// blocks.
pub(crate) fn look_up(
    session: &mut Session<'_>,
    pool: &Pool,
    name: &str,
    path: &str,
) -> Result<Verdict, ZdbError> {
    let place = Place::of(&hold(session, pool, name)?);
    let objset =
        Objset::open(pool.pipeline(), ObjsetId(place.object.0), &place.dataset.root, None)?;
    match lookup::object(&objset, pool.version(), path) {
        Ok(object) => {
            let mut view = ObjectView::new(pool, &objset, compression(pool, Some(&place))?);
            view.print(session, &object)
        }
        Err(lookup::NotFound { path, errno }) => {
            let reason = without_number(&io::Error::from_raw_os_error(errno));
            writeln!(session.notes, "failed to lookup dataset={name} path={path}: {reason}")?;
            Ok(Verdict::Damaged)
        }
    }
}

/// `zdb POOL OBJECT`: a pool name without a slash refers to objects of the MOS.
fn is_mos_asked(session: &Session<'_>) -> bool {
    session.arguments.targets.first().is_some_and(|target| !target.contains(['/', '@']))
}

/// The number in `pool/123`.
fn numeric(name: &str) -> Option<ObjectId> {
    range::number(name.split_once('/')?.1).map(ObjectId)
}

/// An object set to be shown, with the data of its title.
struct Title<'a> {
    name: &'a str,
    kind: &'a str,
    id: ObjsetId,
    created: Txg,
    used: u64,
    /// `None` for the MOS.
    place: Option<&'a Place>,
}

fn print_mos(session: &mut Session<'_>, pool: &Pool) -> Result<Verdict, ZdbError> {
    print_objset(session, pool, &mos_title(pool)?, pool.mos(), &[])
}

fn print_mos_objects(
    session: &mut Session<'_>,
    pool: &Pool,
    ranges: &[ObjectRange],
) -> Result<Verdict, ZdbError> {
    print_objset(session, pool, &mos_title(pool)?, pool.mos(), ranges)
}

fn mos_title(pool: &Pool) -> Result<Title<'static>, ZdbError> {
    let used = order::special_directory(pool, "$MOS")?.map_or(0, |directory| directory.used);
    // The MOS is as old as the pool, whose first txg this is.
    let created = Txg(4);
    Ok(Title { name: "mos", kind: "META", id: ObjsetId::MOS, created, used, place: None })
}

fn print_dataset(
    session: &mut Session<'_>,
    pool: &Pool,
    place: &Place,
    ranges: &[ObjectRange],
) -> Result<Verdict, ZdbError> {
    let id = ObjsetId(place.object.0);
    let objset = match Objset::open(pool.pipeline(), id, &place.dataset.root, None) {
        Ok(objset) => objset,
        Err(error) => {
            writeln!(
                session.notes,
                "failed to own dataset '{}': {}",
                place.name,
                source_text(&error)
            )?;
            return Ok(Verdict::Damaged);
        }
    };
    let title = Title {
        name: &place.name,
        kind: objset.objset_type().name(),
        id,
        created: place.dataset.creation_txg,
        used: place.dataset.referenced,
        place: Some(place),
    };
    print_objset(session, pool, &title, &objset, ranges)
}

/// The system's text for an error.
fn source_text(error: &rzfs_dmu::DmuError) -> String {
    without_number(&io::Error::from_raw_os_error(error.errno()))
}

fn print_objset(
    session: &mut Session<'_>,
    pool: &Pool,
    title: &Title<'_>,
    objset: &Objset,
    ranges: &[ObjectRange],
) -> Result<Verdict, ZdbError> {
    let verbosity = session.arguments.datasets;
    print_title(session, title, objset)?;
    let mut view = ObjectView::new(pool, objset, compression(pool, title.place)?);
    if !ranges.is_empty() {
        return print_ranges(session, &mut view, ranges);
    }
    let is_snapshot = title.place.is_some_and(|place| place.dataset.is_snapshot());
    if !is_snapshot && (session.arguments.intent_logs > 0 || verbosity >= 2) {
        log::print(session, pool, objset)?;
    }
    let mut verdict = Verdict::Clean;
    if let Some(place) = title.place {
        let lists = print_lists(session, pool, place);
        verdict = noted(session, lists)?;
    }
    if verbosity < 2 {
        return Ok(verdict);
    }
    if let Some(meta) = objset.meta_object() {
        verdict = verdict.max(view.print(session, &meta)?);
    }
    for id in ObjectId::ACCOUNTING {
        if let Ok(object) = objset.object(id) {
            verdict = verdict.max(view.print(session, &object)?);
        }
    }
    let mut slots = SlotCount::default();
    verdict = verdict.max(print_all(session, &mut view, &mut slots)?);
    slots.print(session)?;
    if view.lost_files() > 0 {
        writeln!(session.out, "{} potentially leaked objects detected", view.lost_files())?;
    }
    Ok(verdict)
}

/// Prints the lists of blocks of a dataset, and its bookmarks.
fn print_lists(session: &mut Session<'_>, pool: &Pool, place: &Place) -> Result<(), ZdbError> {
    let verbosity = session.arguments.datasets;
    if verbosity >= LISTS {
        if let Some(list) = place.dataset.deadlist {
            lists::print_deadlist(session, pool, list)?;
        }
        if let Some(list) = place.livelist(pool)? {
            lists::print_livelist(session, pool, list)?;
        }
    }
    if verbosity >= BOOKMARKS {
        bookmarks::print(session, pool, place, None)?;
    }
    Ok(())
}

/// The name of the default compression of objects: the function that the property means, with zdb's
/// remark if it does not know the level.
fn compression(pool: &Pool, place: Option<&Place>) -> Result<String, ZdbError> {
    let Some(place) = place else { return Ok("on".to_owned()) };
    if place.dataset.is_snapshot() {
        return Ok("inherit".to_owned());
    }
    let value = pool.datasets().by_object(place.object)?.text(DatasetProperty::Compression)?;
    Ok(match value.as_str() {
        "on" if pool.features().is_active(Feature::Lz4Compress) => "lz4".to_owned(),
        "on" => "lzjb".to_owned(),
        "off" => "uncompressed".to_owned(),
        "gzip" => "gzip-6-unknown".to_owned(),
        value if value == "zstd" || value.starts_with("gzip-") => format!("{value}-unknown"),
        _ => value,
    })
}

fn print_title(
    session: &mut Session<'_>,
    title: &Title<'_>,
    objset: &Objset,
) -> Result<(), ZdbError> {
    let used = session.number(title.used);
    let kind = if title.kind.is_empty() { "NONE" } else { title.kind };
    let objects = objset.root().fill();
    write!(
        session.out,
        "Dataset {} [{kind}], ID {}, cr_txg {}, {used}, {objects} objects",
        title.name, title.id, title.created
    )?;
    if session.arguments.datasets >= 4 {
        write!(session.out, ", rootbp {}", Full(objset.root()))?;
    }
    writeln!(session.out)?;
    Ok(())
}

/// Shows all objects.
fn print_all(
    session: &mut Session<'_>,
    view: &mut ObjectView<'_>,
    slots: &mut SlotCount,
) -> Result<Verdict, ZdbError> {
    let mut verdict = Verdict::Clean;
    for entry in view.objset().objects() {
        match entry {
            Ok(entry) => {
                slots.add(entry.id, entry.dnode.slots);
                match view.objset().object(entry.id) {
                    Ok(object) => verdict = verdict.max(view.print(session, &object)?),
                    Err(error) => verdict = noted(session, Err(error.into()))?,
                }
            }
            Err(error) => verdict = noted(session, Err(error.into()))?,
        }
    }
    Ok(verdict)
}

/// Shows the objects in the ranges.
fn print_ranges(
    session: &mut Session<'_>,
    view: &mut ObjectView<'_>,
    ranges: &[ObjectRange],
) -> Result<Verdict, ZdbError> {
    let mut verdict = Verdict::Clean;
    for range in ranges {
        if let Some(id) = range.single() {
            view.print_heading(session)?;
            let object = match id.0 {
                0 => view.objset().meta_object(),
                _ => view.objset().object(id).ok(),
            };
            let object = object.ok_or(ZdbError::NoObject)?;
            verdict = verdict.max(view.print(session, &object)?);
            continue;
        }
        if range.contains(ObjectId(0))
            && let Some(meta) = view.objset().meta_object()
        {
            view.print_heading(session)?;
            if range.shows(meta.dnode()) {
                verdict = verdict.max(view.print(session, &meta)?);
            }
        }
        for entry in view.objset().objects_from(range.first()) {
            let entry = entry?;
            if !range.contains(entry.id) {
                break;
            }
            view.print_heading(session)?;
            if range.shows(&entry.dnode) {
                let object: Object = view.objset().object(entry.id)?;
                verdict = verdict.max(view.print(session, &object)?);
            }
        }
    }
    writeln!(session.out)?;
    Ok(verdict)
}

/// The density of dnodes in an object set.
#[derive(Default)]
struct SlotCount {
    used: u64,
    last: u64,
}

impl SlotCount {
    fn add(&mut self, id: ObjectId, slots: u8) {
        let slots = u64::from(slots.max(1));
        self.used += slots;
        self.last = self.last.max(id.0.saturating_add(slots - 1));
    }

    fn print(&self, session: &mut Session<'_>) -> io::Result<()> {
        let empty = self.last.saturating_sub(self.used);
        let percent = empty as f64 * 100.0 / self.last as f64;
        let percent = if percent.is_nan() { 0.0 } else { percent };
        writeln!(session.out, "\n    Dnode slots:")?;
        writeln!(session.out, "\tTotal used:    {:10}", self.used)?;
        writeln!(session.out, "\tMax used:      {:10}", self.last)?;
        writeln!(session.out, "\tPercent empty: {percent:10.6}\n")
    }
}
