//! The conformance suite on the scripted fake, for each kind of native work, and the proof that every case of it bites.

use oac_provider::{NativeWork, conformance, fake::FakeWorld};

mod defects;

conformance! { mod engine: [every, host, engine], FakeWorld::new(NativeWork::Engine, None) }
conformance! { mod helper: [every, host, helper, checkpoints], FakeWorld::new(NativeWork::Helper, None) }
conformance! { mod service: [every, service], FakeWorld::new(NativeWork::Service, None) }
