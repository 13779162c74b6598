//! Sandboxes that can be suspended. The planner and its table are `oac_lifecycle`'s; here are the shells around it: Core's
//! rows and steps, Turns as far as they matter to suspension, and what is checked against what really is so.

mod calls;
mod check;
pub(crate) mod rows;
pub(crate) mod steps;
pub(crate) mod turns;
