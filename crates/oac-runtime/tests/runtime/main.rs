//! The real program against a test acceptor that stands where Core would.

mod acceptor;
mod ends;
mod links;
mod output;
mod restarts;
mod starts;
