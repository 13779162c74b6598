use axum::http::StatusCode;
use oac_model::{DiagnosticCode, Digest, Secret};
use oac_node::{Origin, RegisterError, Registration, identity::IdentityError, register};
use oac_wire::frames::Identity;

use crate::{
    installation::{Installation, answer, known},
    provider::{Scripted, scripted},
    scripted_core::{ScriptedCore, envelope, unauthorized},
};

pub(crate) const TOKEN: &str = "an-enrollment-token";

async fn attempt(installation: &Installation) -> Result<Identity, RegisterError> {
    attempt_with(installation, scripted().0, "host").await
}

async fn attempt_with(
    installation: &Installation,
    provider: std::sync::Arc<Scripted>,
    host: &str,
) -> Result<Identity, RegisterError> {
    let registration = Registration {
        config: &installation.config,
        state_dir: &installation.state_dir,
        core: &installation.config.core.clone(),
        name: "node one",
        token: &Secret::new(TOKEN),
        host_id: Digest::of(host),
    };
    register(&registration, provider).await
}

/// Core accepts the token for whatever identity the state directory holds by then.
fn accept_enrollment(core: &ScriptedCore, installation: &Installation, lose_the_answer: bool) {
    let state_dir = installation.state_dir.clone();
    let script = std::sync::Arc::downgrade(&core.script);
    *core.script.enroll.lock() = Box::new(move |seen| {
        let stored = oac_node::identity::peek(&state_dir)
            .unwrap()
            .expect("the identity is durable before the first request that carries its credential");
        let body: serde_json::Value = serde_json::from_slice(&seen.body).unwrap();
        let i = &stored.identity;
        let expected = serde_json::json!({
            "node_id": i.node_id, "credential": stored.credential.expose(), "name": "node one",
            "provider": "docker", "backend_fingerprint": i.backend_fingerprint, "deployment_generation": 1,
            "specification_digest": i.specification_digest, "core_url": stored.core.as_str(),
        });
        assert_eq!(body, expected);
        assert_eq!(seen.headers["authorization"], format!("Bearer {TOKEN}"));
        assert!(!seen.uri.to_string().contains(TOKEN));
        let created = answer(&stored, "");
        *script.upgrade().unwrap().identity.lock() =
            Box::new(move |seen| known(&stored, seen.headers.get("authorization")));
        match lose_the_answer {
            true => (StatusCode::BAD_GATEWAY, "lost".into()),
            false => (StatusCode::CREATED, created),
        }
    });
}

// inv: INV-N2, INV-P25
#[tokio::test]
async fn the_credential_is_durable_before_the_request_that_carries_it() {
    let core = ScriptedCore::start().await;
    let installation = Installation::new(&core);
    accept_enrollment(&core, &installation, false);
    let state_dir = installation.state_dir.clone();
    *core.script.identity.lock() = Box::new(move |_| {
        assert!(oac_node::identity::peek(&state_dir).unwrap().is_some());
        unauthorized()
    });
    let identity = attempt(&installation).await.unwrap();
    assert_eq!((identity.max_active, identity.max_retained), (3, 4));
    assert_eq!(installation.stored().identity, identity);
}

#[tokio::test]
async fn a_lost_answer_to_enroll_is_recovered_with_the_same_identity_and_without_a_second_enrollment() {
    let core = ScriptedCore::start().await;
    let installation = Installation::new(&core);
    accept_enrollment(&core, &installation, true);
    assert!(matches!(
        attempt(&installation).await,
        Err(RegisterError::Enroll(_))
    ));
    let first = installation.stored();
    let identity = attempt(&installation).await.unwrap();
    assert_eq!(identity.node_id, first.identity.node_id);
    assert_eq!(installation.stored().credential, first.credential);
    assert_eq!(core.seen("/enroll").len(), 1);
}

#[tokio::test]
async fn a_provider_that_is_not_ready_stops_registration_with_its_code_before_core_hears_of_it() {
    let core = ScriptedCore::start().await;
    let installation = Installation::new(&core);
    let (provider, _calls) = scripted();
    *provider.probe.lock() = Err(DiagnosticCode::HostUnsupported);
    let error = attempt_with(&installation, provider, "host").await.unwrap_err();
    assert!(error.to_string().contains("host_unsupported"), "{error}");
    assert!(core.script.seen.lock().is_empty());
}

// inv: INV-N36
#[tokio::test]
async fn only_a_refused_token_is_final_and_a_rejection_shows_status_and_code() {
    let core = ScriptedCore::start().await;
    let installation = Installation::new(&core);
    let mismatch = envelope("sandbox_specification_mismatch");
    *core.script.enroll.lock() = Box::new(move |_| (StatusCode::CONFLICT, mismatch.clone()));
    let error = attempt(&installation).await.unwrap_err();
    assert!(!error.is_unauthorized());
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(
        cause,
        "Core answered HTTP 409 Conflict, sandbox_specification_mismatch"
    );
    *core.script.enroll.lock() = Box::new(|_| (StatusCode::UNAUTHORIZED, "a proxy".into()));
    assert!(!attempt(&installation).await.unwrap_err().is_unauthorized());
    *core.script.enroll.lock() = Box::new(|_| unauthorized());
    let error = attempt(&installation).await.unwrap_err();
    assert!(error.is_unauthorized());
    assert!(error.to_string().contains("the enrollment token"), "{error}");
}

#[tokio::test]
async fn state_of_another_configuration_host_or_address_is_refused_and_kept() {
    let core = ScriptedCore::start().await;
    let installation = Installation::registered(&core);
    let before = installation.stored();
    let other_host = attempt_with(&installation, scripted().0, "another host").await;
    assert!(matches!(other_host, Err(RegisterError::Host)), "{other_host:?}");
    let with = |config, core| {
        let (provider, _calls) = scripted();
        let installation = &installation;
        async move {
            let registration = Registration {
                config,
                state_dir: &installation.state_dir,
                core,
                name: "n",
                token: &Secret::new(TOKEN),
                host_id: Digest::of("host"),
            };
            register(&registration, provider).await
        }
    };
    let mut other = installation.config.clone();
    other.generation = 2.try_into().unwrap();
    let result = with(&other, &other.core).await;
    assert!(
        matches!(
            result,
            Err(RegisterError::Identity(IdentityError::Differs("generation")))
        ),
        "{result:?}"
    );
    let elsewhere = Origin::parse("https://elsewhere.example").unwrap();
    let result = with(&installation.config, &elsewhere).await;
    assert!(matches!(result, Err(RegisterError::Address { .. })), "{result:?}");
    assert_eq!(installation.stored(), before);
    assert!(core.script.seen.lock().is_empty());
}
