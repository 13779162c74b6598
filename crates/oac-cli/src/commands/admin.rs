//! `oac admin project|key`.

use clap::{Args, Subcommand};
use oac_model::{ProjectId, ProjectKeyId};
use serde_json::{Value, json};

use super::{Context, id};
use crate::{Failure, client::Key, output};

#[derive(Debug, Subcommand)]
pub(super) enum Admin {
    /// Projects: the tenants of Sessions
    #[command(subcommand)]
    Project(Project),
    /// API keys of a Project
    #[command(subcommand)]
    Key(ProjectKey),
}

#[derive(Debug, Subcommand)]
pub(super) enum Project {
    /// Create a Project
    Create { name: String },
    /// List Projects
    Ls,
    /// Delete a Project that holds no sandbox
    Rm {
        #[arg(value_parser = id::<ProjectId>)]
        project: ProjectId,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum ProjectKey {
    /// Create an API key; it is shown once
    Create(CreateKey),
    /// Revoke an API key
    Rm {
        #[arg(value_parser = id::<ProjectId>)]
        project: ProjectId,
        /// The id that `create` printed
        #[arg(value_parser = id::<ProjectKeyId>)]
        key: ProjectKeyId,
    },
}

#[derive(Debug, Args)]
pub(super) struct CreateKey {
    /// Project id, as `oac admin project ls` shows it
    #[arg(value_parser = id::<ProjectId>)]
    project: ProjectId,
    /// A name for people
    name: String,
}

const PROJECTS: &str = "/core/v1/projects";

impl Admin {
    pub(super) async fn run(self, context: &Context) -> Result<(), Failure> {
        let client = &context.client;
        match self {
            Self::Project(Project::Create { name }) => {
                let project = client.post(Key::Core, PROJECTS, &json!({ "name": name })).await?;
                if context.json {
                    output::json(&project)
                } else {
                    output::line(&output::cell(&project, "id"))
                }
            }
            Self::Project(Project::Ls) => {
                let projects = client.get(Key::Core, PROJECTS).await?;
                if context.json {
                    output::json(&projects);
                } else {
                    let rows: Vec<Vec<String>> = projects
                        .get("data")
                        .and_then(Value::as_array)
                        .into_iter()
                        .flatten()
                        .map(|p| {
                            ["id", "name", "created_at"]
                                .iter()
                                .map(|c| output::cell(p, c))
                                .collect()
                        })
                        .collect();
                    output::table(&["PROJECT", "NAME", "CREATED"], &rows);
                }
            }
            Self::Project(Project::Rm { project }) => {
                client.delete(Key::Core, &format!("{PROJECTS}/{project}")).await?;
            }
            Self::Key(ProjectKey::Create(create)) => {
                let path = format!("{PROJECTS}/{}/keys", create.project);
                let key = client
                    .post(Key::Core, &path, &json!({ "name": create.name }))
                    .await?;
                if context.json {
                    output::json(&key)
                } else {
                    output::line(&output::cell(&key, "key"));
                    output::note(&format!(
                        "Project key {} ({}) was created. Keep the key: it is shown only now.",
                        output::cell(&key, "id"),
                        create.name
                    ));
                }
            }
            Self::Key(ProjectKey::Rm { project, key }) => {
                client
                    .delete(Key::Core, &format!("{PROJECTS}/{project}/keys/{key}"))
                    .await?;
            }
        }
        Ok(())
    }
}
