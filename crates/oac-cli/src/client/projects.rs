//! `/core/v1/projects`.

use oac_model::{ProjectId, ProjectKeyId, Secret};
use serde::Deserialize;
use serde_json::json;

use super::{Client, Document, Key};
use crate::Failure;

const PATH: &str = "/core/v1/projects";

#[derive(Debug, Deserialize)]
pub struct Projects {
    pub data: Vec<Project>,
}

#[derive(Debug, Deserialize)]
pub struct Project {
    pub id: ProjectId,
    pub name: String,
    pub created_at: String,
}

#[derive(Debug, Deserialize)]
pub struct ProjectKey {
    pub id: ProjectKeyId,
    /// Shown once, in this answer.
    pub key: Secret,
}

impl Client {
    pub async fn create_project(&self, name: &str) -> Result<Document<Project>, Failure> {
        self.post(Key::Core, PATH, &json!({ "name": name })).await
    }

    pub async fn projects(&self) -> Result<Document<Projects>, Failure> {
        self.get(Key::Core, PATH).await
    }

    pub async fn remove_project(&self, project: ProjectId) -> Result<(), Failure> {
        self.remove(Key::Core, &format!("{PATH}/{project}")).await
    }

    pub async fn create_project_key(
        &self,
        project: ProjectId,
        name: &str,
    ) -> Result<Document<ProjectKey>, Failure> {
        let path = format!("{PATH}/{project}/keys");
        self.post(Key::Core, &path, &json!({ "name": name })).await
    }

    pub async fn revoke_project_key(&self, project: ProjectId, key: ProjectKeyId) -> Result<(), Failure> {
        self.remove(Key::Core, &format!("{PATH}/{project}/keys/{key}"))
            .await
    }
}
