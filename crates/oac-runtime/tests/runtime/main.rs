//! The real program against a test acceptor that stands where Core would.

mod acceptor;
mod docker_disk;
mod docker_files;
mod docker_image;
mod docker_links;
mod docker_processes;
mod ends;
mod engine;
mod files;
mod links;
mod output;
mod park;
mod ports;
mod restarts;
mod starts;
