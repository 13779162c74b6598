//! `oac admin project|key`.

use clap::{Args, Subcommand};
use oac_model::{ProjectId, ProjectKeyId};

use super::{Run, id};
use crate::{
    Failure,
    config::Config,
    output::{self, Form},
};

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
    Create {
        /// A name for people
        name: String,
    },
    /// List Projects
    #[command(visible_alias = "ls")]
    List,
    /// Delete a Project that holds no sandbox
    Rm {
        /// Project id, as `oac admin project list` shows it
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
        /// Project id, as `oac admin project list` shows it
        #[arg(value_parser = id::<ProjectId>)]
        project: ProjectId,
        /// The id that `create` printed
        #[arg(value_parser = id::<ProjectKeyId>)]
        key: ProjectKeyId,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oac admin key create $P my-application            prints the key, once
  oac admin key create $P my-laptop --save          writes it to this context and prints nothing of it")]
pub(super) struct CreateKey {
    /// Project id, as `oac admin project list` shows it
    #[arg(value_parser = id::<ProjectId>)]
    project: ProjectId,
    /// A name for people
    name: String,
    /// Make it the project_key of the context in use, without printing it
    #[arg(long)]
    save: bool,
}

impl Admin {
    pub(super) async fn run(self, run: &Run) -> Result<(), Failure> {
        let client = &run.client;
        match self {
            Self::Project(Project::Create { name }) => {
                let project = client.create_project(&name).await?;
                match run.form {
                    Form::Json => output::json(&project.json),
                    Form::Text => output::line(&project.value.id.to_string()),
                }
            }
            Self::Project(Project::List) => {
                let projects = client.projects().await?;
                if run.form == Form::Json {
                    output::json(&projects.json);
                    return Ok(());
                }
                let row = |p: &crate::client::projects::Project| {
                    vec![p.id.to_string(), output::cell(&p.name), p.created_at.clone()]
                };
                let rows: Vec<Vec<String>> = projects.value.data.iter().map(row).collect();
                output::table(&["PROJECT", "NAME", "CREATED"], &rows);
            }
            Self::Project(Project::Rm { project }) => client.remove_project(project).await?,
            Self::Key(ProjectKey::Create(create)) => create.run(run).await?,
            Self::Key(ProjectKey::Rm { project, key }) => client.revoke_project_key(project, key).await?,
        }
        Ok(())
    }
}

impl CreateKey {
    async fn run(self, run: &Run) -> Result<(), Failure> {
        let key = run.client.create_project_key(self.project, &self.name).await?;
        let name = output::printable(&self.name);
        if self.save {
            let id = key.value.id;
            let saved = Config::edit(&run.config, |config| {
                let mut entry = config.entry(Some(&run.context))?.1.clone();
                entry.project_key = Some(key.value.key);
                config.put(run.context.clone(), entry);
                Ok(())
            });
            if let Err(failure) = saved {
                // Nobody knows the key now.
                run.client.revoke_project_key(self.project, id).await?;
                return Err(failure);
            }
            match run.form {
                Form::Json => output::json(&serde_json::json!({
                    "id": id, "project_id": self.project, "name": self.name, "context": run.context.as_str(),
                })),
                Form::Text => output::line(&format!(
                    "Project key {id} ({name}) was created and saved in the context {}",
                    run.context
                )),
            }
            return Ok(());
        }
        match run.form {
            Form::Json => output::json(&key.json),
            Form::Text => {
                output::line(key.value.key.expose());
                output::note(&format!(
                    "Project key {} ({name}) was created. Keep the key: it is shown only now.",
                    key.value.id
                ));
            }
        }
        Ok(())
    }
}
