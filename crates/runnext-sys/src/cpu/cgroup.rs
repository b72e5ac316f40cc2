//! Finding the CPU quota in the cgroup files: pure text in, number out.
//!
//! A process is in one group per hierarchy (`/proc/self/cgroup`); hierarchies are mounted somewhere
//! (`/proc/self/mountinfo`); each group's directory has its own limit and is bound by those of
//! all directories above. In a container the group's path and the mount are often seen from different roots;
//! then the mount point itself is the group.

use std::path::{Path, PathBuf};

/// The least quota of all groups the process is in, in cores. `read` fetches a file.
pub(super) fn quota(
    groups: &str,
    mounts: &str,
    read: impl Fn(&Path) -> Option<String>,
) -> Option<f64> {
    let mut least: Option<f64> = None;
    for mount in mounts.lines().filter_map(Mount::parse) {
        let Some(group) = mount.version.group_in(groups) else {
            continue;
        };
        for dir in mount.dirs(group) {
            if let Some(cores) = mount.version.limit(&dir, &read) {
                least = Some(least.map_or(cores, |before| before.min(cores)));
            }
        }
    }
    least
}

/// The two incompatible kinds of cgroup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Version {
    /// One hierarchy per controller; ours is `cpu`.
    V1,
    /// One for all.
    V2,
}

impl Version {
    /// The process's group: the last field of `0::/path` (v2) or of `4:cpu,cpuacct:/path` (v1).
    fn group_in(self, groups: &str) -> Option<&str> {
        groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let ours = match self {
                Version::V1 => controllers.split(',').any(|name| name == "cpu"),
                Version::V2 => id == "0" && controllers.is_empty(),
            };
            ours.then_some(path)
        })
    }

    /// The limit written in directory `dir`, in cores.
    fn limit(self, dir: &Path, read: impl Fn(&Path) -> Option<String>) -> Option<f64> {
        match self {
            Version::V1 => {
                let quota = read(&dir.join("cpu.cfs_quota_us"))?;
                ratio(&quota, &read(&dir.join("cpu.cfs_period_us"))?)
            }
            Version::V2 => {
                let max = read(&dir.join("cpu.max"))?;
                let mut fields = max.split_whitespace();
                ratio(fields.next()?, fields.next()?)
            }
        }
    }
}

/// Cores from a quota ("max" and -1 mean none) and its period, both in microseconds.
fn ratio(quota: &str, period: &str) -> Option<f64> {
    let quota: f64 = quota.trim().parse::<u64>().ok().filter(|&us| us > 0)? as f64;
    let period: f64 = period.trim().parse::<u64>().ok().filter(|&us| us > 0)? as f64;
    Some(quota / period)
}

/// A mounted hierarchy that may limit CPU.
#[derive(PartialEq, Eq, Debug)]
struct Mount {
    version: Version,
    /// The group that is visible at `point`.
    root: PathBuf,
    point: PathBuf,
}

impl Mount {
    /// From a line such as `30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw`: fields 4 and 5
    /// are root and mount point; after ` - ` come type, source and options.
    fn parse(line: &str) -> Option<Mount> {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, point) = (unescape(place.next()?), unescape(place.next()?));
        let mut kind = kind.split(' ');
        let version = match kind.next()? {
            "cgroup2" => Version::V2,
            "cgroup" if kind.nth(1)?.split(',').any(|option| option == "cpu") => Version::V1,
            _ => return None,
        };
        Some(Mount {
            version,
            root,
            point,
        })
    }

    /// The directories of `group` and of all groups above it that this mount shows, innermost first.
    fn dirs(&self, group: &str) -> Vec<PathBuf> {
        let inside = Path::new(group).strip_prefix(&self.root).ok();
        // A path with ".." lies outside what we may see.
        let inside = inside.filter(|path| !path.components().any(|part| part.as_os_str() == ".."));
        let innermost = self.point.join(inside.unwrap_or(Path::new("")));
        let depth = inside.map_or(0, |path| path.components().count());
        innermost
            .ancestors()
            .take(depth + 1)
            .map(Path::to_path_buf)
            .collect()
    }
}

/// Undoes mountinfo's octal escapes (`\040` is a blank).
fn unescape(field: &str) -> PathBuf {
    let mut plain = String::with_capacity(field.len());
    let mut rest = field;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let code = rest
            .get(at + 1..at + 4)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(u8::is_ascii) {
            Some(byte) => {
                plain.push(char::from(byte));
                rest = &rest[at + 4..];
            }
            None => {
                plain.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    plain.push_str(rest);
    PathBuf::from(plain)
}
