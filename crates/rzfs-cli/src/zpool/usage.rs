//! The usage of `zpool`.

use rzfs::setting::pool_properties;

/// Subcommands in the order of the usage, and their syntax; an empty name separates groups.
const COMMANDS: [(&str, &str); 29] = [
    ("version", "\tversion [-j]\n"),
    ("", ""),
    (
        "create",
        "\tcreate [-fnd] [-o property=value] ... \n\
         \t    [-O file-system-property=value] ... \n\
         \t    [-m mountpoint] [-R root] [--size size] [--export] <pool> <vdev> ...\n",
    ),
    ("destroy", "\tdestroy [-f] <pool>\n"),
    ("", ""),
    (
        "add",
        "\tadd [-fn] [--allow-in-use --allow-replication-mismatch --allow-ashift-mismatch]\n\
         \t    [-o property=value] [--size size] <pool> <vdev> ...\n",
    ),
    ("", ""),
    ("labelclear", "\tlabelclear [-f] <vdev>\n"),
    ("", ""),
    (
        "list",
        "\tlist [-gHLpPv] [-o property[,...]] [-j [--json-int, --json-pool-key-guid]] ...\n\
         \t    [-T d|u] [pool] [interval [count]]\n",
    ),
    (
        "status",
        "\tstatus [--power] [-j [--json-int, --json-flat-vdevs, ...\n\
         \t    --json-pool-key-guid]] [-dDegiLpPstvx] ...\n\
         \t    [-T d|u] [pool] [interval [count]]\n",
    ),
    ("", ""),
    ("initialize", "\tinitialize [-c | -s | -u] [-w] <-a | pool> [<device> ...]\n"),
    ("trim", "\ttrim [-dw] [-r <rate>] [-c | -s] <-a | pool> [<device> ...]\n"),
    ("", ""),
    (
        "import",
        "\timport [-d dir | -s] [-D]\n\
         \timport [-o property=value] ... [-d dir | -s] [-DflmN] [-R root]\n\
         \t    {-a | <pool | id> [newpool]}\n",
    ),
    ("export", "\texport [-af] <pool> ...\n"),
    ("upgrade", "\tupgrade\n\tupgrade -v\n\tupgrade <-a | pool ...>\n"),
    ("clear", "\tclear <pool> [vdev]\n"),
    ("reguid", "\treguid <pool>\n"),
    ("history", "\thistory [-il] [<pool>] ...\n"),
    ("events", "\tevents [-vH] [pool]\n\tevents -c\n"),
    ("", ""),
    (
        "get",
        "\tget [-Hp] [-j [--json-int, --json-pool-key-guid]] ...\n\
         \t    [-o \"all\" | field[,...]] <\"all\" | property[,...]> <pool> ...\n",
    ),
    ("set", "\tset <property=value> <pool>\n"),
    ("sync", "\tsync [pool] ...\n"),
    ("ddtprune", "\tddtprune -d|-p <amount> <pool>\n"),
    ("prefetch", "\tprefetch -t <type> [<type opts>] <pool>\n\t    -t ddt <pool>\n"),
    ("wait", "\twait [-Hp] [-T d|u] [-t <activity>[,...]] <pool> [interval]\n"),
];

/// The addition of rzfs to every subcommand.
const DEVICES: &str = "\nAll commands take -d DEVICE... for pools that are not mounted.\n";

/// The whole usage.
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
    let properties = if matches!(command, "get" | "list" | "create" | "set" | "import") {
        pool_properties()
    } else {
        String::new()
    };
    let gap = if properties.is_empty() { "" } else { "\n" };
    format!("usage:\n{syntax}{gap}{properties}")
}
