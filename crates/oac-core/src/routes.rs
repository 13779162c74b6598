//! The routes under `/core/v1`, the machine routes and those anyone may ask.

pub mod allocations;
pub mod audit;
mod commands;
mod console;
pub mod deployment;
pub mod health;
pub mod keys;
pub mod machine;
pub mod nodes;
mod observations;
pub mod projects;
mod releases;
mod shapes;
pub mod tokens;

use crate::http::router::Route;

pub(crate) fn table() -> Vec<Route> {
    let mut table = health::routes();
    table.extend(deployment::routes());
    table.extend(tokens::routes());
    table.extend(commands::routes());
    table.extend(nodes::routes());
    table.extend(allocations::routes());
    table.extend(observations::routes());
    table.extend(audit::routes());
    table.extend(console::routes());
    table.extend(projects::routes());
    table.extend(keys::routes());
    table.extend(machine::routes());
    table.extend(releases::routes());
    table
}
