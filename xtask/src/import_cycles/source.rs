//! A crate as its sources are written: modules, what each defines, imports and names in passing.

use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};
use xtask::process::Failure;

/// The number of a module in its crate. The root is the first.
pub(super) type ModuleId = usize;

/// The segments of a path, with `crate`, `self` and `super` as they are written.
pub(super) type Segments = Vec<String>;

/// A module, without its submodules and without tests.
#[derive(Default)]
pub(super) struct Module {
    /// The file that it is written in: its own, or that of the module around it.
    pub(super) file: PathBuf,
    pub(super) parent: Option<ModuleId>,
    pub(super) submodules: BTreeMap<String, ModuleId>,
    pub(super) definitions: BTreeSet<String>,
    pub(super) imports: Vec<Import>,
    /// Every path in its code outside of imports, a bare name among them.
    pub(super) paths: BTreeSet<Segments>,
}

/// One name, or all names of a module, brought in by a `use`.
pub(super) struct Import {
    pub(super) path: Segments,
    pub(super) name: ImportedName,
    /// Whether other modules can take it from here. Then the import alone is no use of it.
    pub(super) is_reexport: bool,
}

/// What an imported thing is called in the module that imports it.
pub(super) enum ImportedName {
    Named(String),
    Glob,
}

/// Reads a crate from its root file, `lib.rs` or `main.rs`, on.
pub(super) fn read_crate(root: &Path) -> Result<Vec<Module>, Failure> {
    let mut reader = Reader { modules: Vec::new() };
    let directory = root.parent().unwrap_or(root);
    reader.read_file(root, directory, None)?;
    Ok(reader.modules)
}

struct Reader {
    modules: Vec<Module>,
}

impl Reader {
    /// Reads a module that is a file; its submodules are in `directory`.
    fn read_file(
        &mut self,
        file: &Path,
        directory: &Path,
        parent: Option<ModuleId>,
    ) -> Result<ModuleId, Failure> {
        let text = fs::read_to_string(file).map_err(Failure::file(file))?;
        let syntax = syn::parse_file(&text)
            .map_err(|error| Failure::Output(format!("{}: {error}", file.display())))?;
        self.read_module(file, directory, parent, &syntax.items)
    }

    fn read_module(
        &mut self,
        file: &Path,
        directory: &Path,
        parent: Option<ModuleId>,
        items: &[Item],
    ) -> Result<ModuleId, Failure> {
        let id = self.modules.len();
        self.modules.push(Module { file: file.to_owned(), parent, ..Module::default() });
        let mut contents = Module::default();
        for item in items.iter().filter(|item| !is_test(attributes(item))) {
            contents.definitions.extend(defined_name(item));
            contents.visit_item(item);
            let Item::Mod(module) = item else { continue };
            let name = module.ident.to_string();
            let below = directory.join(&name);
            let submodule = match &module.content {
                Some((_, items)) => self.read_module(file, &below, Some(id), items)?,
                None => {
                    let beside = directory.join(format!("{name}.rs"));
                    let file = if beside.exists() { beside } else { below.join("mod.rs") };
                    self.read_file(&file, &below, Some(id))?
                }
            };
            contents.submodules.insert(name, submodule);
        }
        let module = Module { file: file.to_owned(), parent, ..contents };
        self.modules[id] = module;
        Ok(id)
    }
}

/// The name that an item has in its module, unless it is a module.
fn defined_name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether something is compiled only for tests: `#[cfg(test)]`, `#[cfg(all(test, ...))]`.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let mut is_test = false;
        if attribute.path().is_ident("cfg") {
            // What is not understood, `not(...)` among it, is no test.
            let _ = attribute.parse_nested_meta(|condition| {
                if condition.path.is_ident("all") {
                    return condition.parse_nested_meta(|part| {
                        is_test |= part.path.is_ident("test");
                        Ok(())
                    });
                }
                is_test |= condition.path.is_ident("test");
                Ok(())
            });
        }
        is_test
    })
}

/// Collects imports and paths; an import inside of a function counts like one of its module.
impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast Item) {
        if !matches!(item, Item::Mod(_)) && !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            let is_reexport = !matches!(item.vis, Visibility::Inherited);
            let before = self.imports.len();
            flatten(&item.tree, &mut Vec::new(), &mut self.imports);
            for import in self.imports.iter_mut().skip(before) {
                import.is_reexport = is_reexport;
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.paths
                .insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    /// What a macro is called with, or defined as: the syntax is not known, but paths look alike.
    fn visit_token_stream(&mut self, tokens: &'ast TokenStream) {
        collect_paths(tokens.clone(), &mut self.paths);
    }
}

/// The names that a `use` brings in.
fn flatten(tree: &UseTree, prefix: &mut Segments, imports: &mut Vec<Import>) {
    let mut import = |last: Option<&syn::Ident>, name: ImportedName| {
        let last = last.map(ToString::to_string).filter(|last| last != "self");
        let path = prefix.iter().cloned().chain(last).collect();
        imports.push(Import { path, name, is_reexport: false });
    };
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, imports);
            prefix.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            let name = prefix.last().cloned().unwrap_or_default();
            import(None, ImportedName::Named(name));
        }
        UseTree::Name(name) => {
            import(Some(&name.ident), ImportedName::Named(name.ident.to_string()));
        }
        UseTree::Rename(renamed) => {
            import(Some(&renamed.ident), ImportedName::Named(renamed.rename.to_string()));
        }
        UseTree::Glob(_) => import(None, ImportedName::Glob),
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, prefix, imports);
            }
        }
    }
}

/// Finds what looks like a path in tokens; fields and methods, after a dot, are none.
fn collect_paths(tokens: TokenStream, paths: &mut BTreeSet<Segments>) {
    let mut path = Segments::new();
    // The punctuation between the last identifier and what comes.
    let mut punctuation = String::new();
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                if punctuation != "::" {
                    paths.insert(std::mem::take(&mut path));
                }
                if punctuation != "." {
                    path.push(name.to_string());
                }
                punctuation.clear();
            }
            TokenTree::Punct(mark) => punctuation.push(mark.as_char()),
            TokenTree::Group(group) => {
                collect_paths(group.stream(), paths);
                punctuation = " ".to_owned();
            }
            TokenTree::Literal(_) => punctuation = " ".to_owned(),
        }
    }
    paths.insert(path);
    paths.remove(&Segments::new());
}
