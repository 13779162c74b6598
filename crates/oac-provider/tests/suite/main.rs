//! The conformance suite on the scripted fake, for each kind of native work, and the proof that every case of it bites.

use oac_provider::{
    NativeWork, Registered, RegistrationError, conformance, declarations_of,
    fake::{Defect, FakeWorld},
    suite::World as _,
};

mod defects;

conformance! { mod engine: [every, host, engine], FakeWorld::new(NativeWork::Engine, None) }
conformance! { mod helper: [every, host, helper, checkpoints], FakeWorld::new(NativeWork::Helper, None) }
conformance! { mod service: [every, service], FakeWorld::new(NativeWork::Service, None) }

// req: P-072
// inv: INV-V2
#[tokio::test]
async fn a_backend_that_declares_something_else_than_it_is_registered_with_is_not_taken() {
    let kind = oac_model::ProviderKind::Docker;
    let report = conformance::report(declarations_of(kind).unwrap(), &["the scripted fake"]);
    let registered = Registered::new(kind, &report).unwrap();
    let sound = FakeWorld::new(NativeWork::Engine, None).provider();
    assert!(registered.admit(sound).is_ok());
    for other in [
        FakeWorld::new(NativeWork::Engine, Some(Defect::DeclaresOtherwise)),
        FakeWorld::new(NativeWork::Helper, None),
    ] {
        let refused = registered.admit(other.provider()).err();
        assert_eq!(refused, Some(RegistrationError::Undeclared(kind)));
    }
}
