//! Which file a name comes from.

use super::source::{Import, ImportedName, Module, ModuleId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The files that each file takes names from, and the names.
pub(super) type Imports<'a> = BTreeMap<&'a Path, BTreeMap<&'a Path, BTreeSet<String>>>;

/// What a path leads to.
enum Target<'a> {
    Module(ModuleId),
    /// A name that a file of this crate defines.
    Item(&'a Path, String),
    /// Something of another crate.
    Foreign,
}

/// Who takes what from whom in a crate.
pub(super) fn imports(modules: &[Module]) -> Imports<'_> {
    let names = Names { modules };
    let mut imports = Imports::new();
    for (id, module) in modules.iter().enumerate() {
        let own = module.imports.iter().filter(|import| !import.is_reexport);
        let imported = own.flat_map(|import| {
            let mut targets = names.resolve(id, &import.path, &mut Vec::new());
            retain_modules(&mut targets);
            targets
        });
        let named = module.paths.iter().flat_map(|path| names.resolve(id, path, &mut Vec::new()));
        for target in imported.chain(named) {
            if let Target::Item(file, name) = target
                && file != module.file
            {
                imports.entry(&module.file).or_default().entry(file).or_default().insert(name);
            }
        }
    }
    imports
}

/// Takes a name for that of a module, if it can be: in front of `::` it is no function of the same
/// name, and if an import brings in such a function, too, it counts where it is called.
fn retain_modules(targets: &mut Vec<Target<'_>>) {
    if targets.iter().any(|target| matches!(target, Target::Module(_))) {
        targets.retain(|target| matches!(target, Target::Module(_)));
    }
}

/// The modules of a crate, to look names up in.
struct Names<'a> {
    modules: &'a [Module],
}

/// The lookups under way: a name that is being looked up does not lead to itself.
type Pending<'p> = Vec<(ModuleId, &'p str)>;

impl<'a> Names<'a> {
    /// What a path means in a module: nothing, if it begins with a name that the module does not
    /// have. A name can mean several things: a module, a type, a function, a macro.
    fn resolve(
        &self,
        module: ModuleId,
        path: &'a [String],
        pending: &mut Pending<'a>,
    ) -> Vec<Target<'a>> {
        let mut targets = vec![Target::Module(module)];
        for (index, segment) in path.iter().enumerate() {
            retain_modules(&mut targets);
            let mut next = Vec::new();
            for target in targets {
                match (target, segment.as_str()) {
                    (Target::Module(_), "crate") => next.push(Target::Module(0)),
                    (Target::Module(id), "self") => next.push(Target::Module(id)),
                    (Target::Module(id), "super") => {
                        next.extend(self.modules[id].parent.map(Target::Module));
                    }
                    (Target::Module(id), name) => {
                        let found = self.lookup(id, name, pending);
                        // A macro can have defined it where it is asked for.
                        if found.is_empty() && index > 0 {
                            next.push(Target::Item(&self.modules[id].file, name.to_owned()));
                        }
                        next.extend(found);
                    }
                    // Variants and associated items are where their type is.
                    (item_or_foreign, _) => next.push(item_or_foreign),
                }
            }
            targets = next;
        }
        targets
    }

    /// What a name means in a module.
    fn lookup(&self, id: ModuleId, name: &'a str, pending: &mut Pending<'a>) -> Vec<Target<'a>> {
        if pending.contains(&(id, name)) {
            return Vec::new();
        }
        pending.push((id, name));
        let module = &self.modules[id];
        let mut found = Vec::new();
        if module.definitions.contains(name) {
            found.push(Target::Item(&module.file, name.to_owned()));
        }
        found.extend(module.submodules.get(name).copied().map(Target::Module));
        for import in &module.imports {
            if matches!(&import.name, ImportedName::Named(imported) if imported == name) {
                found.extend(self.imported(id, import, pending));
            }
        }
        if found.is_empty() {
            for import in module.imports.iter().filter(|i| matches!(i.name, ImportedName::Glob)) {
                for target in self.imported(id, import, pending) {
                    if let Target::Module(source) = target {
                        found.extend(self.lookup(source, name, pending));
                    }
                }
            }
        }
        pending.pop();
        found
    }

    /// What an import leads to; what is not found is of another crate.
    fn imported(
        &self,
        id: ModuleId,
        import: &'a Import,
        pending: &mut Pending<'a>,
    ) -> Vec<Target<'a>> {
        let targets = self.resolve(id, &import.path, pending);
        if targets.is_empty() { vec![Target::Foreign] } else { targets }
    }
}
