variable "regions" {
  description = "The two regions that the functions run in; neither should be all of what they call."
  type        = object({ first = string, second = string })
  default     = { first = "eu-central-1", second = "us-east-1" }

  validation {
    condition     = var.regions.first != var.regions.second
    error_message = "The regions are the same: name two, so that one may be lost."
  }
}

variable "name" {
  description = "What the names of all resources begin with."
  type        = string
  default     = "cronless-client"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,31}$", var.name))
    error_message = "The name has up to 32 small letters, digits and dashes, and begins with a letter."
  }
}

variable "secret_name" {
  description = "Name of the Secrets Manager secret, in both regions: JSON with the texts path, token and key."
  type        = string
  default     = "cronless/client"

  validation {
    condition     = can(regex("^[A-Za-z0-9/_+=.@-]{1,512}$", var.secret_name))
    error_message = "The secret's name has letters, digits and /_+=.@-: give its name, not its value or its ARN."
  }
}

variable "alarm_topics" {
  description = "ARNs of the SNS topics, by region, that are told of alarms; a region without any shows its alarms only."
  type        = map(set(string))
  default     = {}

  validation {
    condition     = alltrue([for topic in flatten([for topics in var.alarm_topics : tolist(topics)]) : startswith(topic, "arn:")])
    error_message = "An alarm topic is no ARN: give those of SNS topics, such as arn:aws:sns:eu-central-1:123456789012:alarms."
  }
}

variable "own_targets" {
  description = "By region, the name of its own target in checks.toml: needed only where that says skip_self = true."
  type        = map(string)
  default     = {}
}

variable "log_days" {
  description = "How long logs are kept, in days; one of the numbers that CloudWatch knows."
  type        = number
  default     = 30

  validation {
    condition     = contains([1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365], var.log_days)
    error_message = "CloudWatch keeps logs for 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180 or 365 days."
  }
}
