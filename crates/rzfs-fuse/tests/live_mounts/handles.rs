//! File handles, as NFS servers and backup programs keep them.

use crate::mounted::Mounted;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Prints a handle of each file, or the contents of the files with given handles, or the error.
const HANDLES: &str = "
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD, O_PATH = -100, 0o10000000
class Handle(ctypes.Structure):
    _fields_ = [('bytes', ctypes.c_uint), ('type', ctypes.c_int), ('data', ctypes.c_ubyte * 128)]
def take(path):
    handle, mount = Handle(128), ctypes.c_int()
    if libc.name_to_handle_at(AT_FDCWD, path.encode(), ctypes.byref(handle), ctypes.byref(mount), 0):
        raise OSError(ctypes.get_errno(), path)
    return bytes(handle.data[:handle.bytes]).hex() + ':' + str(handle.type)
def use(root, text):
    data, kind = text.split(':')
    data = bytes.fromhex(data)
    handle = Handle(len(data), int(kind))
    handle.data[:len(data)] = data
    fd = libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY)
    if fd < 0:
        return str(ctypes.get_errno())
    if os.path.isdir(f'/proc/self/fd/{fd}'):
        return ','.join(sorted(os.listdir(fd)))
    return os.read(fd, 100).decode()
if sys.argv[1] == 'take':
    print(*map(take, sys.argv[2:]))
else:
    root = os.open(sys.argv[2], os.O_RDONLY)
    print(*(use(root, text) for text in sys.argv[3:]))
";

const ESTALE: &str = "116";

fn handles<S: AsRef<std::ffi::OsStr>>(what: &str, arguments: &[S]) -> Vec<String> {
    let mut python = Command::new("python3");
    let output = python.args(["-c", HANDLES, what]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

fn opened(root: &Path, kept: &[String]) -> Vec<String> {
    let arguments: Vec<_> = [root.to_str().unwrap().to_owned()].into_iter().collect();
    handles("use", &[&arguments[..], kept].concat())
}

#[test]
fn handles_lead_to_files_that_the_kernel_does_not_know() {
    if !rzfs_testkit::has_root("only root opens files by handles") {
        return;
    }
    let mounted = Mounted::new();
    fs::create_dir_all(mounted.path("a/b")).unwrap();
    fs::write(mounted.path("a/b/file"), b"contents").unwrap();
    fs::write(mounted.path("removed"), b"gone").unwrap();
    let paths = ["", "a", "a/b", "a/b/file", "removed"].map(|path| mounted.path(path));
    let kept = handles("take", &paths);
    assert_eq!(opened(&mounted.path(""), &kept), ["a,removed", "b", "file", "contents", "gone"]);
    // After the next mount, the kernel has nothing cached about them.
    let mounted = mounted.again();
    let root = mounted.path("");
    assert_eq!(opened(&root, &kept[3..4]), ["contents"]);
    assert_eq!(opened(&root, &kept[..3]), ["a,removed", "b", "file"]);
    fs::remove_file(mounted.path("removed")).unwrap();
    // Its object number is reused eventually.
    assert_eq!(opened(&root, &kept[4..]), [ESTALE]);
    mounted.files().sync().unwrap();
    for number in 0..40 {
        fs::write(mounted.path(&format!("new-{number}")), b"new").unwrap();
    }
    assert_eq!(opened(&root, &kept[4..]), [ESTALE]);
    // Objects that are not files have numbers as well: the master node, the attribute table.
    let (data, kind) = kept[3].split_once(':').unwrap();
    for number in 1_u64..8 {
        let forged = match number {
            1 => continue,
            number => format!("{:08x}{}", (number as u32).swap_bytes(), &data[8..]),
        };
        assert_eq!(opened(&root, &[format!("{forged}:{kind}")]), [ESTALE], "{number}");
    }
    mounted.finish();
}
