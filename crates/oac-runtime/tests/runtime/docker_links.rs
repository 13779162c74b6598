//! The static program in an image that holds nothing else, on the real engine, under the provider's options.

use std::{net::Ipv4Addr, time::Duration};

use oac_link::{LinkClient, service::Exit};
use tokio::{net::UdpSocket, time::timeout};

use crate::{
    acceptor::{Acceptor, CREDENTIAL, begin, first_output, perform, run, told, until},
    engine::{Container, Network, Scratch, docker, run_image},
};

/// Starting a container takes the engine a while.
const START: Duration = Duration::from_secs(60);

async fn linked(acceptor: &mut Acceptor, container: &Container) -> LinkClient {
    match timeout(START, acceptor.link()).await {
        Ok((client, hello)) => {
            assert_eq!(hello.credential.expose(), CREDENTIAL);
            client
        }
        Err(_) => panic!("no link; the sandbox said: {}", container.logs()),
    }
}

/// The only program in the image runs as a Turn: it says how it is used and ends with 64.
async fn one_turn(client: &LinkClient) {
    let mut usage = run(&["oac-runtime"]);
    usage.cwd = "/workspace".into();
    let told = perform(client, usage).await;
    assert_eq!(told.exit().code.0, Some(64), "{:?}", told.exit());
    assert!(
        String::from_utf8(told.stderr)
            .unwrap()
            .contains("--bootstrap-file")
    );
    let told = perform(client, run(&["/bin/sh"])).await;
    assert_eq!(
        told.exit(),
        &Exit::failed("/bin/sh cannot be executed: no such file or directory")
    );
}

#[tokio::test]
async fn without_libraries_it_links_by_address() {
    let (image, network) = (Scratch::load(), Network::new());
    let mut acceptor = Acceptor::bind(&format!("{}:0", network.gateway)).await;
    let container = Container::start(&image.id(), &network, &acceptor.address().to_string(), &[]);
    one_turn(&linked(&mut acceptor, &container).await).await;
}

#[tokio::test]
async fn without_libraries_it_links_by_a_name_of_the_hosts_file() {
    let (image, network) = (Scratch::load(), Network::new());
    let mut acceptor = Acceptor::bind(&format!("{}:0", network.gateway)).await;
    let host = format!("core.listed.test:{}", acceptor.address().port());
    let listed = format!("core.listed.test:{}", network.gateway);
    let container = Container::start(&image.id(), &network, &host, &["--add-host", &listed]);
    one_turn(&linked(&mut acceptor, &container).await).await;
}

#[tokio::test]
async fn without_libraries_it_links_by_a_name_that_a_name_server_knows() {
    let (image, network) = (Scratch::load(), Network::new());
    let mut acceptor = Acceptor::bind(&format!("{}:0", network.gateway)).await;
    let names = UdpSocket::bind((network.gateway, 53)).await.unwrap();
    let host = format!("core.served.test:{}", acceptor.address().port());
    let server = network.gateway.to_string();
    let container = Container::start(&image.id(), &network, &host, &["--dns", &server]);
    let client = tokio::select! {
        client = linked(&mut acceptor, &container) => client,
        () = serve_names(names, network.gateway) => unreachable!(),
    };
    one_turn(&client).await;
}

#[tokio::test]
async fn without_libraries_it_links_by_tls_to_whom_the_images_roots_vouch_for_and_to_nobody_else() {
    let (image, network) = (Scratch::load(), Network::new());
    let mut acceptor = Acceptor::bind_tls(&format!("{}:0", network.gateway)).await;
    let origin = format!("wss://core.listed.test:{}", acceptor.address().port());
    let listed = ["--add-host", &format!("core.listed.test:{}", network.gateway)];
    let stranger = Container::start(&image.id(), &network, &origin, &listed);
    assert!(acceptor.is_distrusted().await);
    until("the stranger says why", async || {
        stranger.logs().contains("invalid peer certificate")
    })
    .await;
    drop(stranger);
    let roots = include_str!("tls/authority.pem");
    let container = Container::start_with_roots(&image.id(), &network, &origin, &listed, roots);
    one_turn(&linked(&mut acceptor, &container).await).await;
}

/// A name server that knows one name.
async fn serve_names(socket: UdpSocket, address: Ipv4Addr) {
    let name = b"\x04core\x06served\x04test\x00";
    let mut query = [0; 1500];
    loop {
        let (length, from) = socket.recv_from(&mut query).await.unwrap();
        let question = &query[12..length];
        let known = question.to_ascii_lowercase().starts_with(name);
        let wants_ipv4 = question.get(name.len()..name.len() + 2) == Some(&[0, 1]);
        let end = question.iter().position(|b| *b == 0).unwrap() + 5;
        let mut answer = query[..2].to_vec();
        // An answer, recursion available; NXDOMAIN for other names.
        answer.extend_from_slice(&[0x81, if known { 0x80 } else { 0x83 }]);
        answer.extend_from_slice(&[0, 1, 0, u8::from(known && wants_ipv4), 0, 0, 0, 0]);
        answer.extend_from_slice(&question[..end]);
        if known && wants_ipv4 {
            answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
            answer.extend_from_slice(&address.octets());
        }
        socket.send_to(&answer, from).await.unwrap();
    }
}

// inv: INV-S12
#[tokio::test]
async fn nothing_the_engine_shows_of_a_sandbox_holds_the_credential() {
    let (image, network) = (Scratch::load(), Network::new());
    let mut acceptor = Acceptor::bind(&format!("{}:0", network.gateway)).await;
    let container = Container::start(&image.id(), &network, &acceptor.address().to_string(), &[]);
    one_turn(&linked(&mut acceptor, &container).await).await;
    assert!(!acceptor.request.contains(CREDENTIAL));
    let top = docker(&["top", &container.name]).stdout;
    for shown in [
        container.inspect("{{json .}}"),
        container.logs(),
        String::from_utf8(top).unwrap(),
    ] {
        assert!(
            shown.contains("oac-runtime") && !shown.contains(CREDENTIAL),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn a_killed_sandbox_comes_back_without_any_old_process_and_interrupts_its_turn() {
    let network = Network::new();
    let mut acceptor = Acceptor::bind(&format!("{}:0", network.gateway)).await;
    let host = acceptor.address().to_string();
    let container = Container::start(&run_image().id.to_string(), &network, &host, &[]);
    let client = linked(&mut acceptor, &container).await;
    // One daemon of an earlier Turn, and one of the Turn that runs, each in a session of its own.
    let daemon = "setsid sh -c 'echo > /tmp/up; exec sleep 77777' </dev/null >/dev/null 2>&1 & \
         while [ ! -e /tmp/up ]; do sleep 0.01; done; rm /tmp/up;";
    perform(&client, run(&["sh", "-c", daemon])).await;
    let script = format!("{daemon} echo kept > /workspace/file; echo up; exec sleep 1000");
    let alive = async |client: &LinkClient| {
        let script = "for p in /proc/[0-9]*; do \
             test \"$(tr '\\0' ' ' < $p/cmdline 2>/dev/null)\" = 'sleep 77777 ' && echo; done | wc -l";
        perform(client, run(&["sh", "-c", script])).await.all
    };
    assert_eq!(alive(&client).await, b"1\n", "it outlives its Turn");
    let script = script.as_str();
    let turn = begin(&client, run(&["sh", "-c", script])).await;
    first_output(&client, turn).await;
    let before = client.status().await.unwrap().instance_id;
    // As the kernel would when memory runs out: the engine starts the container again.
    let pid: i32 = container.inspect("{{.State.Pid}}").parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let client = linked(&mut acceptor, &container).await;
    assert_ne!(client.status().await.unwrap().instance_id, before);
    let told = told(&client, turn, 0).await;
    assert_eq!(
        (&told.all[..], told.exit()),
        (&b"up\n"[..], &Exit::failed(Exit::RUNTIME_RESTARTED))
    );
    let told = perform(&client, run(&["cat", "/workspace/file"])).await;
    assert_eq!(told.all, b"kept\n");
    assert_eq!(alive(&client).await, b"0\n", "nothing of the old runtime is left");
}
