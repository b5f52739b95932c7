//! Open files: how many this process may have, and how inbound and outbound connections share them,
//! so that a crowd of callers cannot leave deliveries without a socket.

/// Inbound connections get one part in so many; the rest is for deliveries and the store.
const INBOUND_SHARE: usize = 8;

/// The soft limit of open files of this process; `None` when it is unlimited or not told.
pub fn soft_limit() -> Option<usize> {
    read_soft_limit(&std::fs::read_to_string("/proc/self/limits").ok()?)
}

/// How many of `limit` files inbound connections may take, at least 1.
pub fn inbound(limit: usize) -> usize {
    (limit / INBOUND_SHARE).max(1)
}

fn read_soft_limit(limits: &str) -> Option<usize> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_read_as_linux_writes_it() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max open files            1024                 1048576              files\n";
        assert_eq!(read_soft_limit(limits), Some(1024));
        let unlimited = "Max open files            unlimited            unlimited";
        assert_eq!(read_soft_limit(unlimited), None);
        assert_eq!(read_soft_limit(""), None);
    }
}
