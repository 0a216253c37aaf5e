//! The usage of `zfs`.

/// Subcommands in the order of the usage, and their syntax; an empty name separates groups.
const COMMANDS: [(&str, &str); 7] = [
    ("version", "\tversion [-j]\n"),
    ("", ""),
    (
        "list",
        "\tlist [-Hp] [-j [--json-int]] [-r|-d max] [-o property[,...]] [-s property]...\n\
         \t    [-S property]... [-t type[,...]] [filesystem|volume|snapshot] ...\n",
    ),
    ("", ""),
    (
        "get",
        "\tget [-rHp] [-j [--json-int]] [-d max] [-o \"all\" | field[,...]]\n\
         \t    [-t type[,...]] [-s source[,...]]\n\
         \t    <\"all\" | property[,...]> [filesystem|volume|snapshot|bookmark] ...\n",
    ),
    ("", ""),
    ("mount", "\tmount [-j]\n"),
];

/// What rzfs adds, and where to read on.
const NOTES: &str = "\nEach dataset is of the form: pool/[dataset/]*dataset[@name]\n\n\
     For the property list, run: zfs set|get\n\n\
     All commands take -d DEVICE... for pools that are not mounted.\n";

/// The properties of datasets, as shown after a mistake in a command that takes some.
const PROPERTIES: &str = include_str!("properties.txt");

/// Everything.
pub(crate) fn all() -> String {
    let commands: String = COMMANDS
        .iter()
        .map(|(name, syntax)| if name.is_empty() { "\n" } else { *syntax })
        .collect();
    format!(
        "usage: zfs command args ...\nwhere 'command' is one of the following:\n\n{commands}{NOTES}"
    )
}

/// The usage of a subcommand.
pub(crate) fn of(command: &str) -> String {
    let syntax = COMMANDS.iter().find(|(name, _)| *name == command).map_or("", |(_, text)| text);
    let properties = if matches!(command, "get" | "list") { PROPERTIES } else { "" };
    let gap = if properties.is_empty() { "" } else { "\n" };
    format!("usage:\n{syntax}{gap}{properties}")
}
