//! The address that a broker tells the world when nobody says which.
//!
//! Always holds: never a loopback address; when there is no other, that is an error with the way out.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

/// The first address of this machine that others can reach: the one packets to elsewhere leave from,
/// else the first local one that the system lists.
///
/// # Errors
/// When the machine has loopback addresses only; the text says what to set.
pub fn advertised() -> Result<IpAddr, String> {
    by_route("0.0.0.0:0", "192.0.2.1:9")
        .or_else(listed_v4)
        .or_else(|| by_route("[::]:0", "[2001:db8::1]:9"))
        .ok_or_else(|| {
            "this machine has no address but loopback, and clients elsewhere could not use that: \
             set brokerIP1 (or --host) to the address that clients shall use"
                .to_owned()
        })
}

/// Connecting a datagram socket sends nothing; it only makes the system choose a source address.
fn by_route(from: &str, to: &str) -> Option<IpAddr> {
    let socket = UdpSocket::bind(from).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(usable)
}

fn usable(ip: &IpAddr) -> bool {
    let link_local = match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => (v6.segments().first().copied().unwrap_or(0) & 0xffc0) == 0xfe80,
    };
    !ip.is_loopback() && !ip.is_unspecified() && !link_local
}

/// Linux lists local addresses in its forwarding table; elsewhere this finds nothing.
fn listed_v4() -> Option<IpAddr> {
    local_v4(&std::fs::read_to_string("/proc/net/fib_trie").ok()?)
}

fn local_v4(table: &str) -> Option<IpAddr> {
    let mut address: Option<Ipv4Addr> = None;
    for line in table.lines() {
        let line = line.trim();
        if let Some(text) = line.strip_prefix("|-- ") {
            address = text.parse().ok();
        } else if line == "/32 host LOCAL"
            && let Some(found) = address.map(IpAddr::V4).filter(usable)
        {
            return Some(found);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_and_link_local_addresses_of_the_table_are_passed_over() {
        let table = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 127.0.0.1\n        /32 host LOCAL\n     \
                     |-- 169.254.3.4\n        /32 host LOCAL\n     |-- 10.1.2.0\n        /24 link UNICAST\n     \
                     |-- 10.1.2.3\n        /32 host LOCAL\n";
        assert_eq!(local_v4(table), Some(IpAddr::from([10, 1, 2, 3])));
        assert_eq!(local_v4("Local:\n |-- 127.0.0.1\n /32 host LOCAL\n"), None);
    }

    #[test]
    fn whatever_is_found_is_no_loopback_address() {
        match advertised() {
            Ok(ip) => assert!(!ip.is_loopback()),
            Err(text) => assert!(text.contains("brokerIP1")),
        }
    }
}
