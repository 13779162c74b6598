//! A sandbox whose Turns left so many processes that there is no room for another.

use crate::{
    acceptor::{Acceptor, perform, run, shell},
    engine::{Container, Network, run_image},
};

#[tokio::test]
async fn without_room_for_a_process_a_turn_fails_and_the_sandbox_lives_on() {
    let network = Network::new();
    let mut acceptor = Acceptor::bind(&format!("{}:0", network.gateway)).await;
    let host = acceptor.address().to_string();
    let container = Container::start(&run_image().id.to_string(), &network, &host, &[]);
    let (client, hello) = acceptor.link().await;
    // They multiply after the Turn has ended, beyond what the provider's limit allows, and stay.
    let one = "sleep 1; sh -c 'sleep 600 & exec sleep 600' & exec sleep 600";
    let all = format!("for i in $(seq 50); do setsid sh -c \"{one}\" > /dev/null 2>&1 & done; sleep 0.5");
    assert_eq!(perform(&client, shell(&all)).await.exit().code.0, Some(0));
    // Longer than an idle thread would live by default.
    tokio::time::sleep(std::time::Duration::from_secs(12)).await;
    for _ in 0..3 {
        let told = perform(&client, run(&["true"])).await;
        let exit = told.exit();
        let full = exit
            .error
            .0
            .as_ref()
            .is_some_and(|e| e.contains("resource temporarily unavailable"));
        assert!(full || exit.code.0 == Some(0), "{exit:?}");
    }
    assert_eq!(
        client.status().await.unwrap().instance_id,
        hello.instance_id,
        "{}",
        container.logs()
    );
}
