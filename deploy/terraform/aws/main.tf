# A function in each of two regions calls the checks once a minute. Both call all targets in checks.toml: a call too many
# does nothing, and a region that is lost takes no minute with it.

provider "aws" {
  alias  = "first"
  region = var.regions.first
}

provider "aws" {
  alias  = "second"
  region = var.regions.second
}

locals {
  config = abspath("${path.module}/checks.toml")
}

module "first" {
  source    = "./client"
  providers = { aws = aws.first }

  name         = var.name
  region       = var.regions.first
  config_file  = local.config
  secret_name  = var.secret_name
  own_target   = lookup(var.own_targets, var.regions.first, "")
  alarm_topics = lookup(var.alarm_topics, var.regions.first, [])
  log_days     = var.log_days
}

module "second" {
  source    = "./client"
  providers = { aws = aws.second }

  name         = var.name
  region       = var.regions.second
  config_file  = local.config
  secret_name  = var.secret_name
  own_target   = lookup(var.own_targets, var.regions.second, "")
  alarm_topics = lookup(var.alarm_topics, var.regions.second, [])
  log_days     = var.log_days
}
