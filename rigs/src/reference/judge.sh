# Runs on the reference machine, with OpenZFS's kernel module: takes over the pools that rzfs has
# left, judges and changes them, and leaves them to rzfs again.
#   /dev/vdc  a tar of NAME/{pool,round,limits,leave,images/...}      /dev/vdd  the same, afterwards
#   /out/NAME/{import,limits,before,scrub,status,change,after,snapshots,space,export}, and `left` when all is well
# usage: judge.sh SECONDS: no pool is begun later than that.
set -u
export TZ=UTC LC_ALL=C
pools=/tmp/pools; mkdir -p $pools; tar -xf /dev/vdc -C $pools || exit 1

manifest() { # manifest DIR: F = attributes, S = contents, R = device numbers, X = extended attributes
  (cd "$1" && find . -mindepth 1 -path ./.zfs -prune -o -mindepth 1 -printf 'F\t%P\t%y %m %n %U %G %s %T@\t%l\n' | sort
   find . -path ./.zfs -prune -o -type f -print0 | sort -z | xargs -0 -r sha256sum | sed 's/^/S\t/'
   find . -path ./.zfs -prune -o \( -type b -o -type c \) -print0 | sort -z | xargs -0 -r stat -c "R	%n	%t:%T"
   getfattr -h -d -m - -e hex -R . 2>/dev/null | sed 's/^/X\t/')
}

manifests() { # manifests POOL [SNAPSHOT]: of every file system that is mounted, and every snapshot, or all of that name
  local dataset mount mounted snapshot
  zfs list -H -o name,mountpoint,mounted -t filesystem -r "$1" | while IFS="$(printf '\t')" read -r dataset mount mounted; do
    [ "$mounted" = yes ] || continue
    echo "# dataset $dataset"; manifest "$mount"
    for snapshot in $(zfs list -H -o name -t snapshot -d 1 "$dataset"); do
      snapshot=${snapshot#*@}
      [ "$snapshot" = "${2:-$snapshot}" ] || continue
      ls "$mount/.zfs/snapshot/$snapshot/" >/dev/null 2>&1 || continue
      echo "# snapshot $dataset@$snapshot"; manifest "$mount/.zfs/snapshot/$snapshot"
      umount -l "$mount/.zfs/snapshot/$snapshot" 2>/dev/null
    done
  done
}

noise() { head -c "$2" /dev/urandom >"$1"; }
text() { yes "what the kernel wrote about $1" | head -c "$2" >"$1"; }

change_files() { # change_files DIR ROUND: changes what rzfs wrote, and adds files of its own
  local old new=$1/kernel-$2 i
  cd "$1" || return
  for old in rzfs-*; do
    [ -d "$old" ] || continue
    noise "$old/b513" 2000; text "$old/text200k" 150000; : >"$old/b131073"
    printf x | dd of="$old/text1m" bs=1 seek=500000 conv=notrunc 2>/dev/null
    truncate -s 300000 "$old/b4096"; truncate -s 100000 "$old/punched"
    fallocate -p -o 0 -l 131072 "$old/text1m"
    printf end >>"$old/one"; mv "$old/b111" "$old/dir/moved"; rm -rf "$old/dir/sub" "$old/micro"
    rm -f "$old"/fat/entry-number-*-1* "$old/sym"; : >"$old/was-fat/new"; chmod 600 "$old/b512"
    setfattr -n user.kernel -v "$2" "$old/b511"; setfattr -x user.big "$old/one" 2>/dev/null
    setfattr -n user.huge -v short "$old/b512" 2>/dev/null
  done
  if [ -d shared ]; then
    i=0
    for old in shared/n*; do
      i=$((i + 1)); cp --reflink=auto "$old" "shared/kernel-$2-$i"
      cat "$old" >"shared/again-$2-$i"
    done
    rm -f shared/c*-1 shared/n*-0; printf changed | dd of="$old" bs=1 seek=140000 conv=notrunc 2>/dev/null
  fi
  mkdir -p "$new/dir" "$new/many"
  for i in $(seq 1 60); do : >"$new/many/a name that is long enough for a fat directory, number $i"; done
  printf 1 >"$new/one"; noise "$new/b200k" 200000; text "$new/t300k" 300000; noise "$new/dir/b5000" 5000
  dd if=/dev/urandom of="$new/sparse" bs=4k count=1 seek=200 2>/dev/null
  ln -s one "$new/sym"; ln "$new/one" "$new/dir/link"; mkfifo "$new/fifo"; mknod "$new/chr" c 4 5
  setfattr -n user.a -v b "$new/one"; setfattr -n user.long -v "$(head -c 3000 /dev/zero | tr '\0' q)" "$new/b200k"
  cd /
}

has_room() { # has_room POOL FILESYSTEM: whether changing it will not fill a small pool to the last byte
  zpool sync "$1"; [ "$(zfs get -Hp -o value available "$2")" -ge 16777216 ]
}

change() { # change POOL ROUND: files, a new file system, snapshots, and changes after them
  local fs n=0
  if [ "$2" = 1 ]; then
    zfs create "$1/k1" && zfs create -o compression=gzip-2 -o xattr=dir -o recordsize=16k "$1/k1/gzip"
    zfs create -o compression=off -o checksum=sha256 -o copies=2 "$1/k1/copies"
    zfs create -o dnodesize=auto -o xattr=sa -o compression=zstd -o recordsize=1M "$1/k1/large" 2>/dev/null
  fi
  for fs in $(zfs list -H -o name -t filesystem -r "$1" | head -8); do
    [ -d "/$fs" ] && has_room "$1" "$fs" && change_files "/$fs" "$2"
  done
  zfs snapshot -r "$1@k$2"
  for fs in $(zfs list -H -o name -t filesystem -r "$1" | head -8); do
    [ -d "/$fs/kernel-$2" ] || continue
    rm -f "/$fs/kernel-$2/b200k"; text "/$fs/kernel-$2/t300k" 100000
  done
  [ "$2" -ge 3 ] && zfs destroy "$1@k1"
  zpool sync "$1"
}

change_durably() { # change_durably DIR: changes of every kind, waited for
  local new=$1/waited-by-kernel old=$1/kernel-1
  mkdir "$new" && cd "$new" || return
  printf a >created; dd if=/dev/urandom of=data bs=200k count=2 oflag=sync 2>/dev/null
  ln "$old/one" link; mv "$old/dir/b5000" moved; rm "$old/sym"; rm "$old/many/"*"number 7"; ln -s target sym
  truncate -s 1000 "$old/t300k"; fallocate -p -o 0 -l 4096 "$old/sparse"
  printf over | dd of="$old/sparse" bs=1 seek=819300 conv=notrunc 2>/dev/null
  chmod 600 moved; chown 7:8 moved; touch -d @1234567890 created
  setfattr -n user.z -v v moved; setfattr -x user.a "$old/one"
  setfacl -m u:7:rw created 2>/dev/null; mkdir d; mkdir gone; rmdir gone; mknod chr c 1 3; mkfifo fifo
  cp --reflink=auto "$1/rzfs-1/text1m" copy
  dd if=/dev/zero of=last bs=4k count=1 oflag=sync 2>/dev/null
  cd /; sync
}

leave_log() { # leave_log POOL IMAGES: copies of the images, with changes that are in intent logs only
  local fs some
  some=$(zfs list -H -o name -t filesystem -r "$1" | head -4)
  # A log that is not begun before the pool is frozen is not found afterwards.
  for fs in $some; do
    [ -d "/$fs" ] && dd if=/dev/zero of="/$fs/begun" bs=512 count=1 oflag=sync 2>/dev/null
  done
  zpool freeze "$1"
  for fs in $some; do
    [ -d "/$fs/kernel-1" ] && change_durably "/$fs"
  done
  cp -r --sparse=always "$2" "$2-with-log"
}

unlock() { # unlock NAME POOL: loads the keys of encrypted file systems, and mounts these
  local root key
  zfs list -H -o name,encryptionroot,keystatus -t filesystem,volume -r "$2" | while IFS="$(printf '\t')" read -r name root status; do
    [ "$name" = "$root" ] && [ "$status" = unavailable ] || continue
    for key in "$pools/$1"/keys/*; do
      zfs load-key -L "file://$key" "$root" 2>/dev/null && break
    done
  done
  zfs mount -a
}

judge() { # judge NAME POOL ROUND
  local out=/out/$1
  zpool import -f -d "$pools/$1/images" "$2" >"$out/import" 2>&1 || { echo "$1: not imported: $(head -3 "$out/import")"; return; }
  zfs get -Hp -o property,value "$(cat "$pools/$1/limits")" "$2" >"$out/limits"
  unlock "$1" "$2" >>"$out/import" 2>&1
  manifests "$2" >"$out/before"
  zpool scrub -w "$2" >"$out/scrub" 2>&1
  zpool status -v "$2" >"$out/status" 2>&1
  change "$2" "$3" >"$out/change" 2>&1
  [ "$(cat "$pools/$1/leave")" = log ] && leave_log "$2" "$pools/$1/images" >>"$out/change" 2>&1
  manifests "$2" "k$3" >"$out/after"
  zfs list -H -t snapshot -r -o name "$2" >"$out/snapshots"
  zfs list -Hp -t all -r -o name,type,used,available,referenced,logicalreferenced,written "$2" >"$out/space"
  cd /; zpool export "$2" >"$out/export" 2>&1 || { echo "$1: not exported: $(head -3 "$out/export")"; return; }
  [ -d "$pools/$1/images-with-log" ] && rm -rf "$pools/$1/images" && mv "$pools/$1/images-with-log" "$pools/$1/images"
  : >"$out/left"
}

for dir in "$pools"/*/; do
  [ "$SECONDS" -lt "$1" ] || break
  name=$(basename "$dir"); mkdir -p "/out/$name"
  judge "$name" "$(cat "$dir/pool")" "$(cat "$dir/round")"
  echo "judged $name"
done
tar -cSf /dev/vdd -C "$pools" .
