/// Keeps it.
pub async fn keep() {}
