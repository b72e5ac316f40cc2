//! Finding the CPU quota in the cgroup files: pure text in, number out.
//!
//! A process is in one group per hierarchy (`/proc/self/cgroup`); hierarchies are mounted somewhere
//! (`/proc/self/mountinfo`); each group's directory has its own limit and is bound by those of all
//! directories above. In a container the group's path and the mount are often seen from different
//! roots; then the mount point itself is the group.

use std::path::{Path, PathBuf};

/// The least quota of all groups the process is in, in cores. `read` fetches a file.
pub(super) fn quota(
    groups: &str,
    mounts: &str,
    read: impl Fn(&Path) -> Option<String>,
) -> Option<f64> {
    let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
    let limits = [Version::V1, Version::V2].into_iter().flat_map(|version| {
        let dirs = version
            .group_in(groups)
            .map_or(Vec::new(), |group| dirs(version, group, &mounts));
        dirs.into_iter()
            .filter_map(|dir| version.limit(&dir, &read))
            .collect::<Vec<f64>>()
    });
    limits.reduce(f64::min)
}

/// The directories that limit `group`, innermost first. A mount that shows the group is believed;
/// only if none does, the first mount point stands for it. (Mounts may be of other processes'
/// groups: a container engine's, seen from the host.)
fn dirs(version: Version, group: &str, mounts: &[Mount]) -> Vec<PathBuf> {
    let mut ours = mounts.iter().filter(|mount| mount.version == version);
    let shown = ours.clone().find_map(|mount| mount.dirs(group));
    shown
        .or_else(|| ours.next().map(|mount| vec![mount.point.clone()]))
        .unwrap_or_default()
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
    /// From a line such as `30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw`: fields 4
    /// and 5 are root and mount point; after ` - ` come type, source and options.
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

    /// The directories of `group` and of all groups above it that this mount shows, innermost
    /// first; none if the group is not below the mount's root.
    fn dirs(&self, group: &str) -> Option<Vec<PathBuf>> {
        let inside = Path::new(group).strip_prefix(&self.root).ok()?;
        // A path with ".." lies outside what we may see.
        if inside.components().any(|part| part.as_os_str() == "..") {
            return None;
        }
        let depth = inside.components().count();
        let innermost = self.point.join(inside);
        Some(
            innermost
                .ancestors()
                .take(depth + 1)
                .map(Path::to_path_buf)
                .collect(),
        )
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const V2: &str =
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev - cgroup2 cgroup2 rw,nsdelegate\n";

    /// The quota, where the only files are those given.
    fn quota_in(groups: &str, mounts: &str, files: &[(&str, &str)]) -> Option<f64> {
        let files: HashMap<&Path, &str> = files.iter().map(|&(p, t)| (Path::new(p), t)).collect();
        quota(groups, mounts, |path| {
            files.get(path).map(|text| text.to_string())
        })
    }

    #[test]
    fn v2_takes_the_least_on_the_way_up() {
        let files = [
            ("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n"),
            ("/sys/fs/cgroup/a/cpu.max", "400000 100000\n"),
        ];
        assert_eq!(quota_in("0::/a/b/c\n", V2, &files), Some(1.5));
        assert_eq!(quota_in("0::/a\n", V2, &files), Some(4.0));
        assert_eq!(quota_in("0::/other\n", V2, &files), None);
    }

    #[test]
    fn v2_in_a_container_with_its_own_root() {
        let files = [("/sys/fs/cgroup/cpu.max", "50000 100000\n")];
        assert_eq!(
            quota_in("0::/\n", V2, &files),
            Some(0.5),
            "cgroup namespace"
        );
        assert_eq!(
            quota_in("0::/../../x\n", V2, &files),
            Some(0.5),
            "outside the namespace"
        );
        let bound = V2.replace(" / /sys", " /docker/1234 /sys");
        assert_eq!(
            quota_in("0::/docker/1234\n", &bound, &files),
            Some(0.5),
            "host paths"
        );
        assert_eq!(
            quota_in("0::/elsewhere\n", &bound, &files),
            Some(0.5),
            "unrelated paths"
        );
    }

    #[test]
    fn another_groups_mount_is_not_ours() {
        let foreign = "40 23 0:26 /docker/1234 /engine/cgroup rw - cgroup2 cgroup2 rw\n";
        let files = [
            ("/engine/cgroup/cpu.max", "10000 100000"),
            ("/sys/fs/cgroup/me/cpu.max", "200000 100000"),
        ];
        assert_eq!(
            quota_in("0::/me\n", &format!("{foreign}{V2}"), &files),
            Some(2.0)
        );
        assert_eq!(
            quota_in("0::/me\n", &format!("{V2}{foreign}"), &files),
            Some(2.0)
        );
    }

    #[test]
    fn v1_reads_quota_and_period() {
        let mounts = "\
            31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
            32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n";
        let groups = "11:memory:/m\n4:cpuset:/s\n3:cpu,cpuacct:/jobs/7\n";
        let dir = "/sys/fs/cgroup/cpu,cpuacct";
        let at = |path: &str| format!("{dir}{path}");
        let (own_quota, own_period) = (
            at("/jobs/7/cpu.cfs_quota_us"),
            at("/jobs/7/cpu.cfs_period_us"),
        );
        let (top_quota, top_period) = (at("/cpu.cfs_quota_us"), at("/cpu.cfs_period_us"));
        let mut files = [
            (&*own_quota, "250000\n"),
            (&*own_period, "100000\n"),
            (&*top_quota, "-1\n"),
            (&*top_period, "100000\n"),
        ];
        assert_eq!(quota_in(groups, mounts, &files), Some(2.5));
        files[0].1 = "-1\n";
        assert_eq!(quota_in(groups, mounts, &files), None);
    }

    #[test]
    fn hybrid_systems_count_both() {
        let mounts = format!("{V2}32 30 0:28 / /cpu rw - cgroup cgroup rw,cpu\n");
        let files = [
            ("/sys/fs/cgroup/cpu.max", "300000 100000\n"),
            ("/cpu/cpu.cfs_quota_us", "200000\n"),
            ("/cpu/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(quota_in("1:cpu:/\n0::/\n", &mounts, &files), Some(2.0));
    }

    #[test]
    fn nonsense_is_no_limit() {
        for text in [
            "",
            "max",
            "100000",
            "x 100000",
            "100000 0",
            "0 100000",
            "-5 100000",
            "max 100000",
        ] {
            assert_eq!(
                quota_in("0::/\n", V2, &[("/sys/fs/cgroup/cpu.max", text)]),
                None,
                "{text:?}"
            );
        }
        let files = [("/sys/fs/cgroup/cpu.max", "100000 100000")];
        assert_eq!(quota_in("", V2, &files), None);
        assert_eq!(quota_in("garbage\n0:\n", V2, &files), None);
        assert_eq!(
            quota_in("0::/\n", "garbage\n1 2 - cgroup2\n - \n", &files),
            None
        );
    }

    #[test]
    fn a_group_path_may_contain_colons() {
        let files = [("/sys/fs/cgroup/a:b/cpu.max", "100000 100000")];
        assert_eq!(quota_in("0::/a:b\n", V2, &files), Some(1.0));
    }

    #[test]
    fn escaped_mount_points() {
        assert_eq!(unescape(r"/a\040b\134c"), Path::new(r"/a b\c"));
        assert_eq!(unescape(r"/plain"), Path::new("/plain"));
        assert_eq!(unescape(r"/odd\9\"), Path::new(r"/odd\9\"));
    }
}
