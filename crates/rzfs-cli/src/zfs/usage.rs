//! The usage of `zfs`.

use rzfs::setting::dataset_properties;

/// Subcommands in the order of the usage, and their syntax; an empty name separates groups.
const COMMANDS: [(&str, &str); 42] = [
    ("version", "\tversion [-j]\n"),
    ("", ""),
    ("create", "\tcreate [-Pnpuv] [-o property=value] ... <filesystem>\n"),
    (
        "destroy",
        "\tdestroy [-fnpRrv] <filesystem>\n\
         \tdestroy [-dnpRrv] <filesystem|volume>@<snap>[%<snap>][,...]\n\
         \tdestroy <filesystem|volume>#<bookmark>\n",
    ),
    ("", ""),
    ("snapshot", "\tsnapshot [-r] [-o property=value] ... <filesystem|volume>@<snap> ...\n"),
    ("rollback", "\trollback [-rRf] <snapshot>\n"),
    ("clone", "\tclone [-p] [-o property=value] ... <snapshot> <filesystem|volume>\n"),
    ("promote", "\tpromote <clone-filesystem>\n"),
    (
        "rename",
        "\trename [-f] [-pu] <filesystem> <filesystem>\n\
         \trename -r <snapshot> <snapshot>\n",
    ),
    ("bookmark", "\tbookmark <snapshot|bookmark> <newbookmark>\n"),
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
    ("set", "\tset [-u] <property=value> ... <filesystem|volume|snapshot> ...\n"),
    ("inherit", "\tinherit [-rS] <property> <filesystem|volume|snapshot> ...\n"),
    ("", ""),
    ("upgrade", "\tupgrade [-v]\n\tupgrade [-r] [-V version] <-a | filesystem ...>\n"),
    ("", ""),
    (
        "userspace",
        "\tuserspace [-Hinp] [-o field[,...]] [-s field] ...\n\
         \t    [-S field] ... [-t type[,...]] <filesystem|snapshot|path>\n",
    ),
    (
        "groupspace",
        "\tgroupspace [-Hinp] [-o field[,...]] [-s field] ...\n\
         \t    [-S field] ... [-t type[,...]] <filesystem|snapshot|path>\n",
    ),
    (
        "projectspace",
        "\tprojectspace [-Hp] [-o field[,...]] [-s field] ...\n\
         \t    [-S field] ... <filesystem|snapshot|path>\n",
    ),
    ("", ""),
    (
        "project",
        "\tproject [-d|-r] <directory|file ...>\n\
         \tproject -c [-0] [-d|-r] [-p id] <directory|file ...>\n\
         \tproject -C [-k] [-r] <directory ...>\n\
         \tproject [-p id] [-r] [-s] <directory ...>\n",
    ),
    ("", ""),
    ("mount", "\tmount [-j]\n\tmount [-Oflv] [-o opts] <-a | filesystem>\n"),
    ("unmount", "\tunmount [-f] <-a | filesystem|mountpoint>\n"),
    ("", ""),
    (
        "send",
        "\tsend [-DLPcenvw] [-i snapshot|bookmark | -I snapshot] <snapshot>\n\
         \tsend [-LPcenv] -t <receive_resume_token>\n\
         \tsend [-LPcenv] --saved <filesystem|volume>\n",
    ),
    (
        "receive",
        "\treceive [-vMnsFhu] [-o <property>=<value>] ... [-x <property>] ...\n\
         \t    <filesystem|volume|snapshot>\n\
         \treceive [-vMnsFhu] [-o <property>=<value>] ... [-x <property>] ...\n\
         \t    [-d | -e] <filesystem>\n\
         \treceive -A <filesystem|volume>\n",
    ),
    ("", ""),
    ("hold", "\thold [-r] <tag> <snapshot> ...\n"),
    ("holds", "\tholds [-rHp] <snapshot> ...\n"),
    ("release", "\trelease [-r] <tag> <snapshot> ...\n"),
    ("diff", "\tdiff [-FHht] <snapshot> [snapshot|filesystem]\n"),
    ("", ""),
    ("load-key", "\tload-key [-rn] [-L <keylocation>] <-a | filesystem|volume>\n"),
    ("unload-key", "\tunload-key [-r] <-a | filesystem|volume>\n"),
    (
        "change-key",
        "\tchange-key [-l] [-o keyformat=<value>]\n\
         \t    [-o keylocation=<value>] [-o pbkdf2iters=<value>]\n\
         \t    <filesystem|volume>\n\
         \tchange-key -i [-l] <filesystem|volume>\n",
    ),
    ("", ""),
    ("wait", "\twait [-t <activity>] <filesystem>\n"),
];

/// The additions of rzfs, and where to read on.
const NOTES: &str = "\nA file system or volume is named POOL[/NAME]..., a snapshot of it with @NAME.\n\
     'zfs get' without words lists all properties.\n\n\
     All commands take -d DEVICE... for pools that are not mounted.\n";

/// The whole usage.
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
    let command = match command {
        "umount" => "unmount",
        "recv" => "receive",
        "snap" => "snapshot",
        command => command,
    };
    let syntax = COMMANDS.iter().find(|(name, _)| *name == command).map_or("", |(_, text)| text);
    let properties = if matches!(command, "get" | "list" | "set" | "inherit" | "create") {
        dataset_properties()
    } else {
        String::new()
    };
    let gap = if properties.is_empty() { "" } else { "\n" };
    format!("usage:\n{syntax}{gap}{properties}")
}
