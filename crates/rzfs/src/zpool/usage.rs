//! The usage of `zpool`.

/// Subcommands in the order of the usage, and their syntax; an empty name separates groups.
const COMMANDS: [(&str, &str); 9] = [
    ("version", "\tversion [-j]\n"),
    ("", ""),
    (
        "list",
        "\tlist [-gHLpPv] [-o property[,...]] [-j [--json-int, --json-pool-key-guid]] ...\n\
         \t    [-T d|u] [pool] [interval [count]]\n",
    ),
    (
        "status",
        "\tstatus [--power] [-j [--json-int, --json-flat-vdevs, ...\n\
         \t    --json-pool-key-guid]] [-c [script1,script2,...]] [-dDegiLpPstvx] ...\n\
         \t    [-T d|u] [pool] [interval [count]]\n",
    ),
    ("", ""),
    ("import", "\timport [-d dir] [-D]\n"),
    ("history", "\thistory [-il] [<pool>] ...\n"),
    ("", ""),
    (
        "get",
        "\tget [-Hp] [-j [--json-int, --json-pool-key-guid]] ...\n\
         \t    [-o \"all\" | field[,...]] <\"all\" | property[,...]> <pool> ...\n",
    ),
];

/// What rzfs adds to every subcommand.
const DEVICES: &str = "\nAll commands take -d DEVICE... for pools that are not mounted.\n";

/// The properties of pools, as shown after a mistake in a command that takes some.
const PROPERTIES: &str = include_str!("properties.txt");

/// Everything.
pub(crate) fn all() -> String {
    let commands: String = COMMANDS
        .iter()
        .map(|(name, syntax)| if name.is_empty() { "\n" } else { *syntax })
        .collect();
    format!(
        "usage: zpool command args ...\nwhere 'command' is one of the following:\n\n\
         {commands}{DEVICES}"
    )
}

/// The usage of a subcommand.
pub(crate) fn of(command: &str) -> String {
    let syntax = COMMANDS.iter().find(|(name, _)| *name == command).map_or("", |(_, text)| text);
    let properties = if matches!(command, "get" | "list") { PROPERTIES } else { "" };
    let gap = if properties.is_empty() { "" } else { "\n" };
    format!("usage:\n{syntax}{gap}{properties}")
}
