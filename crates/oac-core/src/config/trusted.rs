//! Whose word about a client's address is believed.

use std::net::IpAddr;

use axum::http::HeaderMap;
use ipnet::IpNet;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// Networks of proxies before Core. None by default: then a client is who connected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<IpNet>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither an address nor a network such as 10.0.0.0/8 or fd00::/8")]
pub struct NetworkError(String);

impl TrustedProxies {
    /// Addresses and networks; a network's address may have bits beyond its length.
    pub fn parse(networks: &[String]) -> Result<Self, NetworkError> {
        let parse = |text: &String| {
            let network = text.parse::<IpNet>().ok();
            network
                .or_else(|| {
                    text.parse::<IpAddr>()
                        .ok()
                        .map(|address| address.to_canonical().into())
                })
                .ok_or_else(|| NetworkError(text.clone()))
        };
        networks.iter().map(parse).collect::<Result<_, _>>().map(Self)
    }

    fn trust(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Who sent a request that came from `peer`: the last address in `X-Forwarded-For` that no trusted proxy has. Each
    /// proxy appends who connected to it, so what stands left of that address is the client's own word.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut client = peer.to_canonical();
        let lines = headers.get_all(FORWARDED_FOR).iter().rev();
        let mut entries = lines.flat_map(|line| line.to_str().unwrap_or("?").rsplit(','));
        while self.trust(client) {
            match entries.next().map(str::trim).map(address) {
                Some(Some(before)) => client = before,
                // Nobody before it, or something that no proxy writes: the proxy itself is all that is known.
                Some(None) | None => break,
            }
        }
        client
    }
}

/// An address, perhaps with a port, as proxies write it.
fn address(entry: &str) -> Option<IpAddr> {
    let plain = entry.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = plain
        .unwrap_or(entry)
        .parse()
        .or_else(|_| entry.parse::<std::net::SocketAddr>().map(|address| address.ip()));
    address.ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trusted(networks: &[&str]) -> TrustedProxies {
        let networks: Vec<String> = networks.iter().map(|&network| network.to_owned()).collect();
        TrustedProxies::parse(&networks).unwrap()
    }

    fn client(trusted: &TrustedProxies, peer: &str, lines: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(FORWARDED_FOR, line.parse().unwrap());
        }
        trusted.client(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn an_address_a_client_made_up_is_never_believed() {
        let none = TrustedProxies::default();
        assert_eq!(client(&none, "10.0.0.1", &["203.0.113.1"]), "10.0.0.1");
        let proxies = trusted(&["10.0.0.0/8", "fd00::/8", "192.0.2.1"]);
        for (peer, lines, expected) in [
            ("203.0.113.9", &["203.0.113.1"][..], "203.0.113.9"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.1"], "203.0.113.1"),
            ("::ffff:10.0.0.1", &["203.0.113.1"], "203.0.113.1"),
            ("fd00::1", &["2001:db8::1"], "2001:db8::1"),
            ("10.0.0.1", &["[2001:db8::1]:443"], "2001:db8::1"),
            ("10.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
            ("10.0.0.1", &["203.0.113.1:55"], "203.0.113.1"),
            ("10.0.0.1", &["::ffff:203.0.113.1"], "203.0.113.1"),
            // Made up by the client, then its address as the first proxy saw it, then the first proxy.
            (
                "10.0.0.1",
                &["1.1.1.1, 203.0.113.1,10.2.0.1 , 192.0.2.1"],
                "203.0.113.1",
            ),
            ("10.0.0.1", &["1.1.1.1, 203.0.113.1", "10.2.0.1"], "203.0.113.1"),
            ("10.0.0.1", &["203.0.113.1, 10.3.0.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.1, unknown, 10.3.0.1"], "10.3.0.1"),
            ("10.0.0.1", &["10.9.0.1, 10.8.0.1"], "10.9.0.1"),
            ("10.0.0.1", &[""], "10.0.0.1"),
        ] {
            assert_eq!(client(&proxies, peer, lines), expected, "{peer} {lines:?}");
        }
    }

    #[test]
    fn what_is_no_network_is_refused_by_its_text() {
        for bad in ["", "10.0.0.0/33", "proxy.example.org", "10.0.0", "*"] {
            assert!(TrustedProxies::parse(&[bad.to_owned()]).is_err(), "{bad}");
        }
    }
}
