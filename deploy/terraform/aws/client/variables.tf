variable "name" {
  description = "What the names of all resources begin with."
  type        = string
}

variable "region" {
  description = "The region of this instance; global names, those of roles, end in it."
  type        = string
}

variable "config_file" {
  description = "Path of checks.toml."
  type        = string
}

variable "secret_name" {
  description = "Name of the Secrets Manager secret with path, token and key."
  type        = string
}

variable "own_target" {
  description = "Name of this region's target in checks.toml; empty: not said."
  type        = string
}

variable "alarm_topics" {
  description = "ARNs of the SNS topics that are told of alarms."
  type        = set(string)
}

variable "log_days" {
  description = "How long logs are kept, in days."
  type        = number
}

variable "timeout_seconds" {
  description = "How long the function may run; checks.toml's deadline_seconds should be some seconds less."
  type        = number
  default     = 55

  validation {
    condition     = var.timeout_seconds >= 10 && var.timeout_seconds <= 900
    error_message = "The function's time limit is from 10 to 900 seconds."
  }
}
