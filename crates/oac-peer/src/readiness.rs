use oac_wire::frames::Arguments;

/// `create` and a resume that is not reconcile_only start no native work on a generation that is not ready, whichever
/// end looks (INV-P11).
pub(crate) fn needs_ready_generation(arguments: &Arguments) -> bool {
    match arguments {
        Arguments::Create(_) => true,
        Arguments::Resume(resume) => !resume.reconcile_only,
        _ => false,
    }
}
