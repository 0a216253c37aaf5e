//! Looks whether the files of a crate import each other in a circle.
//!
//! ```text
//! source   modules, definitions, imports, paths     as they are written
//! names    file -> file: names                      through re-exports, to the file that defines it
//! graph    files that lead to each other            none, or the check fails
//! ```
//! A file that can be read without those that use it is a file that can be understood. `mod x;` and
//! `pub use` are no imports: a module shows what is below it and need not know it. Tests do not
//! count; methods of a type that lie in another file than the type are not seen.

mod graph;
mod names;
mod source;

use crate::markdown::name_of;
use names::Imports;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use xtask::process::{Failure, cargo, output};

/// Prints the cycles of all crates in the workspace.
pub(crate) fn run() -> Result<(), Failure> {
    let mut cycles = 0;
    for root in crate_roots()? {
        let modules = source::read_crate(&root)?;
        let imports = names::imports(&modules);
        for cycle in graph::cycles(&imports) {
            cycles += 1;
            println!("{}", description(&cycle, &imports));
        }
    }
    if cycles == 0 {
        Ok(())
    } else {
        Err(Failure::Checks("the check for cycles of imports".to_owned()))
    }
}

/// The root files of the libraries and programs in the workspace.
fn crate_roots() -> Result<Vec<PathBuf>, Failure> {
    let arguments = ["metadata", "--no-deps", "--format-version", "1", "--offline"];
    let mut metadata = cargo(&arguments);
    let metadata: Value = serde_json::from_str(&output(&mut metadata)?)
        .map_err(|_| Failure::Output("cargo metadata".to_owned()))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let crates = targets.filter(|target| {
        let mut kinds = target["kind"].as_array().into_iter().flatten();
        kinds.any(|kind| kind == "lib" || kind == "bin")
    });
    Ok(crates.filter_map(|target| target["src_path"].as_str()).map(PathBuf::from).collect())
}

/// A cycle in words: who takes what from whom.
fn description(cycle: &BTreeSet<&Path>, imports: &Imports<'_>) -> String {
    let mut lines = vec![format!("a cycle of {} files:", cycle.len())];
    for &file in cycle {
        let taken = imports.get(file).into_iter().flatten();
        for (source, names) in taken.filter(|(source, _)| cycle.contains(*source)) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            lines.push(format!("  {} -> {}: {}", name_of(file), name_of(source), names.join(", ")));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The cycles of a crate with these files, by the names of the files.
    fn cycles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let modules = source::read_crate(&directory.path().join("lib.rs")).unwrap();
        let imports = names::imports(&modules);
        let relative = |file: &&Path| {
            file.strip_prefix(directory.path()).unwrap().to_str().unwrap().to_owned()
        };
        graph::cycles(&imports).iter().map(|cycle| cycle.iter().map(relative).collect()).collect()
    }

    #[test]
    fn files_that_import_each_other_are_found() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B; pub struct A(B);"),
            ("b.rs", "use crate::c::{self, C}; pub struct B(C);"),
            ("c.rs", "use super::a::A; pub struct C(Box<A>);"),
        ]);
        assert_eq!(found, [["a.rs", "b.rs", "c.rs"]]);
    }

    #[test]
    fn two_cycles_are_two() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "use crate::a::A; use crate::c::C; pub struct B;"),
            ("c.rs", "use crate::d::*; pub struct C(D);"),
            ("d.rs", "use crate::c::C as Other; pub struct D;"),
        ]);
        assert_eq!(found, [["a.rs", "b.rs"], ["c.rs", "d.rs"]]);
    }

    #[test]
    fn reexports_lead_to_the_file_that_defines() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b; pub use a::A; pub use b::{inner::B};"),
            ("a.rs", "use crate::B; pub struct A(B);"),
            ("b.rs", "pub(crate) mod inner;"),
            ("b/inner.rs", "use crate::A; pub struct B(Box<A>);"),
        ]);
        assert_eq!(found, [["a.rs", "b/inner.rs"]]);
    }

    #[test]
    fn modules_and_reexports_alone_are_no_imports() {
        let found = cycles(&[
            ("lib.rs", "mod a; pub use a::A; pub const LIMIT: usize = 1;"),
            (
                "a.rs",
                "mod below; pub use below::Below; pub struct A; pub(super) const SIZE: u8 = 1;",
            ),
            ("a/below.rs", "use super::{A, SIZE}; use crate::LIMIT; pub struct Below(A);"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_parent_that_uses_what_it_reexports_imports_it() {
        let found = cycles(&[
            ("lib.rs", "mod a; pub use a::A; pub const LIMIT: usize = 1; fn f(_: A) {}"),
            ("a.rs", "use super::LIMIT; pub struct A;"),
        ]);
        assert_eq!(found, [["a.rs", "lib.rs"]]);
    }

    #[test]
    fn paths_in_code_are_imports() {
        let by_call = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub fn f() { crate::b::g() }"),
            ("b.rs", "pub fn g() { super::a::f() }"),
        ];
        assert_eq!(cycles(&by_call), [["a.rs", "b.rs"]]);
        let by_type = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub struct A { b: Option<crate::b::B> }"),
            ("b.rs", "use super::a; pub struct B; impl From<a::A> for B {}"),
        ];
        assert_eq!(cycles(&by_type), [["a.rs", "b.rs"]]);
        let in_macros = [
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub const A: u8 = 1; fn f() { assert_eq!(A, crate::b::B, \"{}\", 1) }"),
            ("b.rs", "pub const B: u8 = 1; macro_rules! m { () => { $crate::a::A } }"),
        ];
        assert_eq!(cycles(&in_macros), [["a.rs", "b.rs"]]);
    }

    #[test]
    fn imports_inside_of_functions_count() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "pub fn f() { use crate::b::g; g() }"),
            ("b.rs", "pub fn g() { use crate::a::f; f() }"),
        ]);
        assert_eq!(found, [["a.rs", "b.rs"]]);
    }

    #[test]
    fn tests_do_not_count() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "use crate::b::B; pub struct A(B);"),
            (
                "b.rs",
                "#[cfg(test)] use crate::a::A; pub struct B; #[cfg(test)] mod tests; \
                 #[cfg(all(test, unix))] mod model { use crate::a::A; } \
                 impl B { #[cfg(test)] fn of(_: crate::a::A) {} }",
            ),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_module_is_not_taken_for_a_function_of_its_name() {
        let found = cycles(&[
            ("lib.rs", "mod cat; mod cp; pub fn cat() { cat::run(); cp::run() }"),
            ("cat.rs", "pub fn run() {}"),
            ("cp.rs", "use super::cat; pub fn run() { cat::run() }"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn other_crates_are_not_looked_at() {
        let found = cycles(&[
            ("lib.rs", "mod a; mod sync { pub use std::sync::Arc; }"),
            ("a.rs", "use crate::sync::Arc; use std::fmt; pub struct A(Arc<fmt::Error>);"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_cycle_is_described_by_the_names_that_tie_it() {
        let (a, b) = (Path::new("a.rs"), Path::new("b.rs"));
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let imports = Imports::from([
            (a, [(b, names(&["B", "g"]))].into()),
            (b, [(a, names(&["A"])), (Path::new("c.rs"), names(&["C"]))].into()),
        ]);
        let expected = "a cycle of 2 files:\n  a.rs -> b.rs: B, g\n  b.rs -> a.rs: A";
        assert_eq!(description(&[a, b].into(), &imports), expected);
    }
}
