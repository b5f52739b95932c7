//! Which addresses are not the public Internet: the IANA special-purpose registries for IPv4 and
//! IPv6, and the addresses where clouds hand out credentials.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses that a public destination never has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressRange {
    /// `127.0.0.0/8`, `::1`: this machine.
    Loopback,
    /// RFC 1918 and `fc00::/7`: this site.
    Private,
    /// `169.254.0.0/16` and `fe80::/10`: this link, where most clouds serve instance metadata.
    LinkLocal,
    /// Metadata services that live outside the link-local range.
    Metadata,
    /// `0.0.0.0/8`, `::`: no host; many systems connect it to themselves.
    Unspecified,
    /// `100.64.0.0/10`: the provider's network (carrier-grade NAT, overlay networks).
    Shared,
    /// `224.0.0.0/4`, `ff00::/8`.
    Multicast,
    /// `255.255.255.255`.
    Broadcast,
    /// `198.18.0.0/15`.
    Benchmarking,
    /// Addresses for examples in documents.
    Documentation,
    /// Everything else that is not assigned to hosts on the Internet.
    Reserved,
}

/// Metadata services outside `169.254.0.0/16`: Alibaba Cloud and Azure.
const METADATA_V4: [Ipv4Addr; 2] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
];
/// Metadata services inside `fc00::/7`: of AWS, whose several services share a prefix, and of Google
/// Cloud.
const METADATA_V6_AWS: [u16; 2] = [0xfd00, 0xec2];
const METADATA_V6_GOOGLE: Ipv6Addr = Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254);

impl AddressRange {
    /// The special range of `address`; `None` when it is a public unicast address. An IPv6 address
    /// that carries an IPv4 address (mapped, compatible, NAT64, 6to4) has the range of what it
    /// carries, because that is where its packets end up.
    pub fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(v4) => Self::of_v4(v4),
            IpAddr::V6(v6) => Self::of_v6(v6),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Option<Self> {
        let [a, b, c, _] = address.octets();
        if METADATA_V4.contains(&address) {
            return Some(Self::Metadata);
        }
        Some(match (a, b, c) {
            (0, ..) => Self::Unspecified,
            (127, ..) => Self::Loopback,
            (10, ..) | (172, 16..=31, _) | (192, 168, _) => Self::Private,
            (169, 254, _) => Self::LinkLocal,
            (100, 64..=127, _) => Self::Shared,
            (198, 18..=19, _) => Self::Benchmarking,
            (192, 0, 2) | (198, 51, 100) | (203, 0, 113) => Self::Documentation,
            // Protocol assignments (RFC 6890) and the retired 6to4 relays (RFC 7526).
            (192, 0, 0) | (192, 88, 99) => Self::Reserved,
            (224..=239, ..) => Self::Multicast,
            _ if address == Ipv4Addr::BROADCAST => Self::Broadcast,
            (240.., ..) => Self::Reserved,
            _ => return None,
        })
    }

    fn of_v6(address: Ipv6Addr) -> Option<Self> {
        let [first, second, ..] = address.segments();
        if [first, second] == METADATA_V6_AWS || address == METADATA_V6_GOOGLE {
            return Some(Self::Metadata);
        }
        if let Some(carried) = carried_v4(address) {
            return Self::of_v4(carried);
        }
        Some(match address.segments() {
            [0, 0, 0, 0, 0, 0, 0, 0] => Self::Unspecified,
            [0, 0, 0, 0, 0, 0, 0, 1] => Self::Loopback,
            [0xfc00..=0xfdff, ..] => Self::Private,
            [0xfe80..=0xfebf, ..] => Self::LinkLocal,
            [0xff00..=0xffff, ..] => Self::Multicast,
            [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Self::Documentation,
            [0x2001, 2, 0, ..] => Self::Benchmarking,
            // Protocol assignments (RFC 2928), Teredo among them.
            [0x2001, 0..=0x1ff, ..] => Self::Reserved,
            // The only block from which hosts have addresses.
            [0x2000..=0x3fff, ..] => return None,
            _ => Self::Reserved,
        })
    }
}

/// The IPv4 address inside an IPv6 address, for the forms whose packets reach it.
fn carried_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let joined = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        // `::` and `::1` are addresses of their own.
        [0, 0, 0, 0, 0, 0, 0, 0..=1] => None,
        // Compatible and mapped (RFC 4291); translated (RFC 2765); NAT64 (RFC 6052); 6to4 (RFC 3056).
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..] => Some(joined(high, low)),
        _ => None,
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::LinkLocal => "link-local",
            Self::Metadata => "cloud metadata",
            Self::Unspecified => "unspecified",
            Self::Shared => "shared",
            Self::Multicast => "multicast",
            Self::Broadcast => "broadcast",
            Self::Benchmarking => "benchmarking",
            Self::Documentation => "documentation",
            Self::Reserved => "reserved",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::AddressRange::{self, *};

    #[test]
    fn every_special_range_is_known_by_its_first_and_last_address() {
        for (range, addresses) in [
            (Loopback, "127.0.0.0 127.255.255.255 ::1"),
            (
                Private,
                "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255 \
                 fc00:: fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            ),
            (
                LinkLocal,
                "169.254.0.0 169.254.169.254 169.254.255.255 fe80:: febf:ffff::1",
            ),
            (
                Metadata,
                "100.100.100.200 168.63.129.16 fd00:ec2::254 fd00:ec2::23 fd20:ce::254",
            ),
            (Unspecified, "0.0.0.0 0.255.255.255 ::"),
            (Shared, "100.64.0.0 100.127.255.255"),
            (
                Multicast,
                "224.0.0.0 239.255.255.255 ff00:: ff02::1 ffff::1",
            ),
            (Broadcast, "255.255.255.255"),
            (Benchmarking, "198.18.0.0 198.19.255.255 2001:2::1"),
            (
                Documentation,
                "192.0.2.1 198.51.100.1 203.0.113.255 2001:db8::1 3fff::1 3fff:fff::1",
            ),
            (
                Reserved,
                "192.0.0.1 192.88.99.1 240.0.0.0 255.255.255.254 2001::1 2001:1ff::1 100::1 \
                 fec0::1 5f00::1 64:ff9b:1::1 4000::1",
            ),
        ] {
            for address in addresses.split_whitespace() {
                let parsed = address.parse().expect(address);
                assert_eq!(AddressRange::of(parsed), Some(range), "{address}");
            }
        }
    }

    #[test]
    fn public_addresses_on_both_sides_of_each_range_have_none() {
        for address in "1.0.0.0 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 \
             128.0.0.0 169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 \
             192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255 \
             2000::1 2001:200::1 2001:4860:4860::8888 2a00::1 3ffe::1 3fff:1000::1"
            .split_whitespace()
        {
            let parsed = address.parse().expect(address);
            assert_eq!(AddressRange::of(parsed), None, "{address}");
        }
    }

    #[test]
    fn an_address_inside_an_ipv6_address_decides_its_range() {
        for (address, range) in [
            ("::ffff:127.0.0.1", Some(Loopback)),
            ("::127.0.0.1", Some(Loopback)),
            ("::ffff:0:127.0.0.1", Some(Loopback)),
            ("64:ff9b::169.254.169.254", Some(LinkLocal)),
            ("2002:7f00:1::1", Some(Loopback)),
            ("2002:a9fe:a9fe::1", Some(LinkLocal)),
            ("::ffff:10.1.2.3", Some(Private)),
            ("64:ff9b::10.0.0.1", Some(Private)),
            ("::ffff:100.100.100.200", Some(Metadata)),
            ("::2", Some(Unspecified)),
            ("64:ff9b::8.8.8.8", None),
            ("2002:808:808::1", None),
            ("::ffff:8.8.8.8", None),
        ] {
            let parsed = address.parse().expect(address);
            assert_eq!(AddressRange::of(parsed), range, "{address}");
        }
    }
}
